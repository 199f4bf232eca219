"""``--dry-run --try``: the first trial trains to its first report in this process, saves, and continues from there."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from ray.train import Checkpoint
from torch import distributed
from torch.distributed import HashStore  # type: ignore[attr-defined]

from gaudi_tune.base import names
from gaudi_tune.base.errors import USER_CODE_ERRORS, SweepError, users_error
from gaudi_tune.base.process import temporary_environment
from gaudi_tune.base.words import duration, format_value
from gaudi_tune.devices.find import DEVICE
from gaudi_tune.group.clean.cleaner import TrialFolders
from gaudi_tune.group.errors import WorkerRaisedError
from gaudi_tune.group.report_check import check_metrics
from gaudi_tune.group.worker import TrialStopped
from gaudi_tune.plan.planner import make_proposer
from gaudi_tune.private.ray_train import answered_by, one_worker
from gaudi_tune.training.checkpoint import Seal, seal
from gaudi_tune.training.fresh_start import fresh_start
from gaudi_tune.training.session import get_checkpoint, open_session, report

if TYPE_CHECKING:
    from gaudi_tune.define.sweep_plan import Plan
    from gaudi_tune.training.session import SaveFunction

ONE_STEP = {"epochs": 0, "steps": 2, "eval_every": 1}
"""The budget of a loop that is known to keep to one in steps: it reports after its first step."""


class _OneReport:
    """Takes the first report of a loop, with its checkpoint."""

    def __init__(self, folder: Path, checkpoint: Path | None = None) -> None:
        self.folder = folder
        self.metrics: dict[str, Any] = {}
        self.saved: Path | None = None
        self.has_read = False
        """Whether the loop has asked for the checkpoint that it continues from."""
        self._checkpoint = checkpoint

    def report(self, metrics: Mapping[str, Any], save: SaveFunction | None) -> None:
        self.metrics = dict(metrics)
        if save is not None and self._checkpoint is None:
            folder = self.folder / "checkpoint_000001"
            folder.mkdir(parents=True)
            save(folder)
            seal(folder, Seal(1))
            self.saved = folder
        raise TrialStopped({"do": "stop"})

    def save_if_asked(self, save: SaveFunction) -> None:
        """Do not save between two reports: nothing takes this process away."""

    def get_checkpoint(self) -> Checkpoint | None:
        self.has_read = True
        return Checkpoint.from_directory(self._checkpoint) if self._checkpoint is not None else None


def try_first_trial(plan: Plan) -> dict[str, Any]:
    """Train the first trial of a plan to its first report, save, and let it continue to the next one: in this process,
    without Ray. Return what the trial reported, and whether it saves and continues.

    Raises:
        SweepError: The loop raised an error, or reported what a sweep cannot use.
    """
    proposal = make_proposer(plan).propose("tried")
    budget = ONE_STEP if plan.experiment.config_class.divides_work else {}
    config = {names.CONFIRMS: 0, **plan.settings, **proposal, **budget}
    start = time.monotonic()
    with TemporaryDirectory(prefix="gaudi-tune-try-") as parent, _as_a_worker(plan, config):
        folder, folders = Path(parent, plan.name, "trial-001"), TrialFolders(Path(parent), may_remove=True)
        opening = _OneReport(folder)
        _train(plan, config, opening, folders, "")
        if not opening.metrics:
            raise SweepError("--try: the train loop returned without a report; call report() once an epoch")
        outcome: dict[str, Any] = {"metrics": opening.metrics, "saves": opening.saved is not None, "continues": False}
        if opening.saved is not None:
            second = _OneReport(folder, opening.saved)
            _train(plan, config, second, folders, "as it continued from its checkpoint, ")
            outcome["continues"] = second.has_read
    return {**outcome, "seconds": round(time.monotonic() - start, 1)}


def lines_of_try(plan: Plan, outcome: Mapping[str, Any]) -> list[str]:
    """Return what :func:`try_first_trial` returned, in words."""
    values = ", ".join(
        f"{objective.name} {format_value(outcome['metrics'][objective.name])}" for objective in plan.objectives
    )
    saving = "has nothing to save with that report: give report() save= or checkpoint= to keep models"
    if outcome["saves"]:
        saving = "saved, and continued from there"
        if not outcome["continues"]:
            saving = "saved, but begins again instead of continuing, since its loop does not call get_checkpoint()"
    line = f"try       trial 001 trained in {duration(outcome['seconds'])}: {values}; it {saving}"
    return [line, "dry run: all checks passed, no sweep was started"]


_GROUPS: list[Any] = []
"""Groups that live as long as this process. One that is freed while its thread frees the tensors of its last collective
hangs: it waits for the thread, which waits for Python's lock (seen with torch 2.7)."""


@contextmanager
def _as_a_worker(plan: Plan, config: Mapping[str, Any]) -> Iterator[None]:
    """Have what a worker of the plan has inside the block: its variables, a process group, and a current folder.

    The group has one process, however many workers a trial of the plan has.
    """
    here, variables = Path.cwd(), plan.experiment.config_class.environment_of(config)
    with temporary_environment({**variables, DEVICE: plan.devices.type.kind}), one_worker():
        distributed.init_process_group("gloo", store=HashStore(), rank=0, world_size=1)
        _GROUPS.append(distributed.group.WORLD)
        try:
            yield
        finally:
            os.chdir(here)
            with suppress(AssertionError):  # the loop has ended it
                distributed.destroy_process_group()


def _train(plan: Plan, config: Mapping[str, Any], session: _OneReport, folders: TrialFolders, moment: str) -> None:
    """Run the loop until it reports or returns, and check the report."""
    fresh_start(config.get("seed", 0))
    folders.enter_next("trial-001")
    try:
        with open_session(session), answered_by(report, get_checkpoint, session.folder):
            plan.experiment.train_loop(dict(config))
    except TrialStopped:
        unit = names.STEP if config.get("steps") else names.EPOCH
        metrics = {**session.metrics, unit: session.metrics.get(unit) or 1}  # a loop may count from 0
        try:
            check_metrics(metrics, [objective.name for objective in plan.objectives], unit)
        except WorkerRaisedError as error:
            raise SweepError(f"--try: {moment}{error.failure.text}") from error
    except USER_CODE_ERRORS as error:
        raise SweepError(f"--try: {moment}the train loop raised {users_error(error)}; fix it there") from error
