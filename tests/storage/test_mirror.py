"""The copy of a sweep in an object store that fails, stalls and comes back."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

import pytest

from gaudi_tune.base.files import OWNER_FILE
from gaudi_tune.storage import mirror as mirror_module
from gaudi_tune.storage import owner as owner_module
from gaudi_tune.storage.mirror import Mirror
from gaudi_tune.storage.owner import Owner, owner_in
from gaudi_tune.storage.remote import Remote, here
from gaudi_tune.training.checkpoint import Seal, seal
from tests.helpers.object_store import BUCKET, ObjectStore

WITHIN_S = 60.0
SEALED = ("seal.json", "state.pt")
"""The files of a checkpoint."""


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mirror_module, "LOOK_EVERY_S", 0.05)
    monkeypatch.setattr(mirror_module, "BEAT_S", 0.2)
    monkeypatch.setattr(owner_module, "SETTLE_S", 0.1)


@pytest.fixture
def folder(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    folder = tmp_path / request.node.name[:60].replace("[", "-").strip("]")
    folder.mkdir()
    (folder / "sweep.json").write_text("{}")
    return folder


@pytest.fixture
def running(folder: Path, store: ObjectStore) -> Iterator[Mirror]:
    mirror = mirror_of(folder)
    mirror.take(None)
    mirror.start()
    yield mirror
    store.proxy.fails = store.proxy.stalls = False
    mirror.close()


def mirror_of(folder: Path) -> Mirror:
    return Mirror(folder, f"s3://{BUCKET}/{folder.name}")


def until(done: Callable[[], bool]) -> None:
    end = time.monotonic() + WITHIN_S
    while not done():
        assert time.monotonic() < end
        time.sleep(0.02)


def checkpoint(folder: Path, place: str, report: int, size: int = 1000) -> Path:
    written = folder / place
    written.mkdir(parents=True)
    (written / "state.pt").write_bytes(os.urandom(size))
    seal(written, Seal(report))
    return written


def test_files_of_a_sweep_are_there_soon_and_deleted_ones_go(folder: Path, running: Mirror, store: ObjectStore) -> None:
    there = lambda: store.objects(f"{folder.name}/")  # noqa: E731
    first = checkpoint(folder, "trial-001/checkpoint_000000", 1, 9 * 2**20)
    (folder / "trial-001" / "result.json").write_text("{}\n")
    (folder / "state.log").write_bytes(b"names checkpoint_000000")
    (folder / "running.lock").touch()
    (folder / "sweep.partial.json").touch()
    (folder / "optuna.log").write_text("{}\n")
    torn = folder / "trial-002" / "checkpoint_000000"
    torn.mkdir(parents=True)
    (torn / "state.pt").write_bytes(b"half")
    until(lambda: {"state.log", "optuna.log", "trial-001/result.json"} <= {*there()})
    assert {*there()} == {
        "owner.json", "sweep.json", "state.log", "optuna.log", "trial-001/result.json",
        "trial-001/checkpoint_000000/state.pt", "trial-001/checkpoint_000000/seal.json",
    }  # fmt: skip
    assert there()["trial-001/checkpoint_000000/state.pt"] == 9 * 2**20
    checkpoint(folder, "trial-001/checkpoint_000001", 2)
    (folder / "state.log").write_bytes(b"names checkpoint_000001")
    shutil.rmtree(first)
    until(lambda: "trial-001/checkpoint_000000/seal.json" not in there())
    until(lambda: store.read(f"{folder.name}/state.log") == b"names checkpoint_000001")
    assert "trial-001/checkpoint_000001/seal.json" in there()
    assert running.close() == ""
    owner = owner_in(Remote(f"s3://{BUCKET}/{folder.name}"))
    assert owner == owner_in(here(folder))
    assert owner is not None
    assert owner.ended


def test_a_log_never_names_a_checkpoint_that_is_not_there(
    folder: Path, running: Mirror, store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    order: list[str] = []
    copy = Remote.copy

    def noted(remote: Remote, source: BinaryIO, name: str, *options: Any, **more: Any) -> None:
        order.append(name)
        copy(remote, source, name, *options, **more)

    monkeypatch.setattr(Remote, "copy", noted)
    place = "trial-001/checkpoint_000000"
    checkpoint(folder, place, 1)
    (folder / "state.log").write_bytes(place.encode())
    until(lambda: "state.log" in order)
    assert order.index(f"{place}/state.pt") < order.index(f"{place}/seal.json") < order.index("state.log")


def test_a_file_that_only_has_another_time_is_not_sent_again(folder: Path, running: Mirror, store: ObjectStore) -> None:
    (folder / "trial-001").mkdir()
    same, other = (folder / "trial-001" / name for name in ("result.json", "curve"))
    same.write_text("[1]")
    other.write_text("[1]")
    until(lambda: {"trial-001/result.json", "trial-001/curve"} <= {*store.objects(f"{folder.name}/")})
    name = f"{folder.name}/trial-001/result.json"
    store.put(name, b"[x]")  # as nothing here would write it
    os.utime(same)
    other.write_text("[2]")
    until(lambda: store.read(f"{folder.name}/trial-001/curve") == b"[2]")
    assert running.close() == ""
    assert store.read(name) == b"[x]"


@pytest.mark.parametrize("fault", ["fails", "stalls"])
def test_a_storage_that_comes_back_gets_everything(
    folder: Path, running: Mirror, store: ObjectStore, fault: str
) -> None:
    until(lambda: "sweep.json" in store.objects(f"{folder.name}/"))
    setattr(store.proxy, fault, True)
    checkpoint(folder, "trial-001/checkpoint_000000", 1)
    (folder / "state.log").write_bytes(b"1")
    time.sleep(1)
    assert "state.log" not in store.objects(f"{folder.name}/")
    setattr(store.proxy, fault, False)
    assert running.close() == ""
    assert {"state.log", "trial-001/checkpoint_000000/seal.json"} <= {*store.objects(f"{folder.name}/")}


@pytest.mark.parametrize("seen", [True, False])
def test_a_bucket_that_comes_back_empty_gets_everything(
    folder: Path, running: Mirror, store: ObjectStore, seen: bool
) -> None:
    checkpoint(folder, "trial-001/checkpoint_000000", 1)
    (folder / "state.log").write_bytes(b"1")
    everything = {"owner.json", "sweep.json", "state.log", *(f"trial-001/checkpoint_000000/{n}" for n in SEALED)}
    until(lambda: {*store.objects(f"{folder.name}/")} == everything)
    store.lose_bucket()
    if seen:
        until(lambda: "NoSuchBucket" in running._error or "NO_SUCH_BUCKET" in running._error)
    store.client.create_bucket(Bucket=BUCKET)
    if seen:
        until(lambda: {*store.objects(f"{folder.name}/")} == everything)
    assert running.close() == ""
    assert {*store.objects(f"{folder.name}/")} == everything


def test_a_storage_that_refuses_what_it_took_gets_everything_once_it_takes_it_again(
    folder: Path, running: Mirror, store: ObjectStore
) -> None:
    until(lambda: "sweep.json" in store.objects(f"{folder.name}/"))
    with store.refuses():
        (folder / "state.log").write_bytes(b"1")
        until(lambda: bool(running._error))
    assert running.close() == ""
    assert store.read(f"{folder.name}/state.log") == b"1"


def test_a_storage_that_lacks_something_at_the_end_is_named(
    folder: Path, running: Mirror, store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mirror_module, "GIVE_UP_AFTER_S", 1.0)
    until(lambda: "sweep.json" in store.objects(f"{folder.name}/"))
    store.proxy.fails = True
    (folder / "state.log").write_bytes(b"1")
    assert f"s3://{BUCKET}/{folder.name} lacks " in running.close()


def test_a_machine_that_has_lost_the_sweep_writes_nothing_more(
    folder: Path, running: Mirror, store: ObjectStore
) -> None:
    until(lambda: "sweep.json" in store.objects(f"{folder.name}/"))
    rival = Owner(id="another", host="node-2")

    def is_noticed() -> bool:
        # Written each time: a beat that has read the file and not yet written it covers the first.
        Remote(f"s3://{BUCKET}/{folder.name}").write(OWNER_FILE, rival.text)
        return bool(running.rival_host)

    until(is_noticed)
    (folder / "state.log").write_bytes(b"1")
    assert running.close() == f"s3://{BUCKET}/{folder.name} is now written by node-2, which has taken the sweep"
    assert "state.log" not in store.objects(f"{folder.name}/")


def test_another_process_sends_what_is_new_and_deletes_what_is_gone(folder: Path, store: ObjectStore) -> None:
    first = mirror_of(folder)
    first.take(None)
    first.start()
    kept, gone = (checkpoint(folder, f"trial-00{n}/checkpoint_000000", 1) for n in (1, 2))
    (folder / "state.log").write_bytes(b"1")
    assert first.close() == ""
    shutil.rmtree(gone)
    (folder / "state.log").write_bytes(b"12")
    second = mirror_of(folder)
    second.take(owner_in(here(folder)))
    before = store.client.head_object(Bucket=BUCKET, Key=f"{folder.name}/trial-001/checkpoint_000000/seal.json")
    second.start()
    assert second.close() == ""
    assert {*store.objects(f"{folder.name}/")} == {
        "owner.json", "sweep.json", "state.log",
        "trial-001/checkpoint_000000/state.pt", "trial-001/checkpoint_000000/seal.json",
    }  # fmt: skip
    after = store.client.head_object(Bucket=BUCKET, Key=f"{folder.name}/trial-001/checkpoint_000000/seal.json")
    assert before["LastModified"] == after["LastModified"], "it was there already"
    assert kept.is_dir()
