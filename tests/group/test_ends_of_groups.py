"""How worker groups end: by themselves, late, or because workers fail or do not come."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from gaudi_tune.base.failure import FailureKind
from gaudi_tune.devices.find import DEVICE_TYPES
from gaudi_tune.group.errors import StartHungError, WorkerRaisedError, WorkersLostError, failure_of
from gaudi_tune.group.lean_trainer import LEAVE_WITHIN_S
from gaudi_tune.group.trainer import WorkerGroupSpec
from gaudi_tune.group.worker_group import WorkerGroup
from tests.helpers.groups import start_group
from tests.helpers.host import Hosted
from tests.helpers.loops import any_loop, ending, giving_back
from tests.helpers.odd_groups import Exclusive, Impatient, Lost, Unprepared, impatient_group


def test_the_last_line_names_the_end_of_a_process(host: Any, tmp_path: Path) -> None:
    group = start_group(host, ending, 1, tmp_path)
    with pytest.raises(WorkersLostError) as raised:
        group.start_trial({}, None)
    group.exit()
    says = "it was killed, it crashed, or your train loop called os._exit()"
    assert says in str(raised.value).splitlines()[-1]
    assert failure_of(raised.value).kind == FailureKind.LOST


def test_workers_that_do_not_come_are_not_waited_for_for_ever(host: Any, tmp_path: Path) -> None:
    spec = WorkerGroupSpec(
        train_loop=any_loop, num_workers=1, device=Unprepared(), storage=str(tmp_path), hung_after_s=1
    )
    with pytest.raises(StartHungError, match=r"no report for 0\.0166667 minutes: the workers hang while they start"):
        Hosted(host, impatient_group, spec)


def test_each_worker_gives_its_device_back_when_one_of_them_fails(host: Any, tmp_path: Path) -> None:
    """Rank 0, which trains, is asked to end as Python ends; it would not while its trial actor waits for its report."""
    spec = WorkerGroupSpec(train_loop=giving_back, num_workers=2, device=Exclusive(), storage=str(tmp_path))
    group = Hosted(host, WorkerGroup.start, spec, "exclusive")
    log = tmp_path / "log"
    log.touch()
    group.start_trial({"log": str(log)}, None)
    began = time.monotonic()
    with pytest.raises(WorkerRaisedError, match="rank 1 failed on purpose"):
        group.next_report()
    group.exit()
    assert time.monotonic() - began < LEAVE_WITHIN_S
    while len(ranks := log.read_text().split()) < 2 and time.monotonic() - began < 60:
        time.sleep(0.1)  # Ray says that an actor has ended a moment before its process does
    assert sorted(ranks) == ["0", "1"]


def test_a_worker_that_fails_between_two_trials_says_why(host: Any, tmp_path: Path) -> None:
    """It reports nothing: its trial actor hears from Ray Train."""
    spec = WorkerGroupSpec(train_loop=any_loop, num_workers=1, device=Lost(), storage=str(tmp_path))
    group = Hosted(host, WorkerGroup.start, spec, "lost")
    group.start_trial({"loop": "counting", "first": 1}, None)
    with pytest.raises(WorkerRaisedError, match=r"the worker group ended: (?s:.*)OSError: the device is lost"):
        group.start_trial({"loop": "counting", "first": 1}, None)
    group.exit()


def test_a_group_that_ends_late_leaves_the_next_one_its_devices(host: Any, tmp_path: Path) -> None:
    spec = WorkerGroupSpec(train_loop=any_loop, num_workers=1, device=DEVICE_TYPES["cpu"], storage=str(tmp_path))
    late = Hosted(host, Impatient.start, spec, "late")
    late.start_trial({"loop": "lingering", "until": str(tmp_path / "now")}, None)
    late.exit()
    following = Hosted(host, WorkerGroup.start, spec, "following")
    following.start_trial({"loop": "quadratic", "x": 0.5, "epochs": 5, "seconds": 0.5}, None)
    (tmp_path / "now").touch()
    for _ in range(20):  # until it has ended
        late.exit()
    epochs = [following.next_report()["metrics"]["epoch"] for _ in range(4)]
    following.exit()
    assert epochs == [2, 3, 4, 5]


def test_a_first_trial_that_leaves_nothing_is_what_later_ones_are_held_against(monkeypatch: pytest.MonkeyPatch) -> None:
    group = WorkerGroup.__new__(WorkerGroup)
    group._first_residue, group._residue, group._hung_after_s, group._workers = None, 0.0, 0.0, []
    outgrown = []
    for residue in (None, 0.0, 0.5):  # None: no trial has ended yet
        reports = [{"kind": "metrics", "residue": residue}]
        monkeypatch.setattr(group, "_wait", lambda *_, reports=reports: reports)
        group.next_report()
        outgrown.append(group.outgrown)
    assert outgrown == [False, False, True]
