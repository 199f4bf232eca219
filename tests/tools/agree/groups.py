"""Simulated groups whose trial actors are real: each makes the sweep's own trainable, and trains a loop of a kind.

Only what Ray and processes do is simulated. What a loop saves, how far a checkpoint is behind its report, and where a
trial goes on are as in a sweep.
"""

from __future__ import annotations

import json
import math
import shutil
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from ray.air.execution._internal.tracked_actor import TrackedActor
from ray.exceptions import RayTaskError

from gaudi_tune.base.failure import Failure, FailureKind, fingerprint_of
from gaudi_tune.base.files import STATE_LOG
from gaudi_tune.group.errors import WorkerRaisedError, WorkersLostError
from gaudi_tune.group.last_written_checkpoint import LastWritten
from gaudi_tune.training.report_values import plain_report
from gaudi_tune.training.session import WrittenCheckpoint
from tests.helpers.simulated_actors import Clock, TrialActor
from tests.helpers.simulated_groups import REPORT_S, Groups
from tests.tools.agree.loops import Curve, LostError

STATE = "state.json"


class KilledError(BaseException):
    """Takes the place of ``kill -9``."""


class Workers:
    """The workers of a trial actor, in this process, in place of a WorkerGroup."""

    outgrown = False

    def __init__(self, loop: Curve, devices: str, log: Callable[[str, int, Mapping[str, Any], bool], None]) -> None:
        self._loop, self.devices, self._log, self.used = loop, devices, log, False
        self._save: Any = None
        self._given: WrittenCheckpoint | None = None
        """What came with the last report."""
        self._written = LastWritten(Path(), None)

    def start_trial(self, config: dict[str, Any], checkpoint: str | None, folder: str, reports: int) -> dict[str, Any]:
        self._written.forget()
        self.used, self._given, self._trial = True, None, Path(folder).name
        self._scratch = Path(folder).parent / f".scratch-{self._trial}"
        start = json.loads(Path(checkpoint, STATE).read_text()) if checkpoint else {"epoch": 0, "reports": 0}
        self._written = LastWritten(Path(folder), Path(checkpoint) if checkpoint else None)
        self._count = start["reports"]
        self._config = config
        if checkpoint and self._fails("load fails"):
            raise _raised(RuntimeError("it cannot be loaded"))
        self._reports = self._loop.reports(dict(config), start["epoch"], start["reports"])
        return self.next_report()

    def next_report(self) -> dict[str, Any]:
        if self._given is not None:
            self._written.copy_written(self._given)
            self._given = None
        try:
            metrics, saves = next(self._reports)
        except StopIteration:
            return {"kind": "finished"}
        except LostError as error:
            raise WorkersLostError(str(error)) from error
        except Exception as error:
            raise _raised(error) from error
        self._count += 1
        self._log(self._trial, self._count, {**metrics, "x": self._config["x"]}, saves)
        written = None
        if saves:
            shutil.rmtree(self._scratch, ignore_errors=True)
            self._scratch.mkdir()
            state = {"epoch": metrics.get("epoch", self._count), "reports": self._count, "metrics": metrics}
            (self._scratch / STATE).write_text(json.dumps(state))
            self._given = written = WrittenCheckpoint(self._scratch)
        self._save = self._written.to_save(written)
        flags = {"saves": self._save is not None, "behind": self._written.behind, "reads_checkpoint": self._loop.reads}
        return {"kind": "metrics", "metrics": plain_report(metrics), **flags}

    def save(self, directory: str) -> None:
        if self._fails("save fails"):
            raise _raised(RuntimeError("it cannot be saved"))
        Path(directory).mkdir(parents=True, exist_ok=True)
        self._save(Path(directory))

    def _fails(self, how: str) -> bool:
        return self._loop.mishap == how and self._loop.strikes(self._config)

    def exit(self) -> None:
        self._written.forget()


def _raised(error: Exception) -> WorkerRaisedError:
    """The error of a train loop, as a worker hands it in."""
    return WorkerRaisedError(Failure(FailureKind.LOOP_ERROR, f"{type(error).__name__}: {error}", fingerprint_of(error)))


class _Failed:
    def __init__(self, error: Exception) -> None:
        self.error = RayTaskError("train", str(error), error).as_instanceof_cause()


class RealActors(Groups):
    """Simulated devices and time, and a real trainable for each trial actor."""

    def __init__(
        self,
        count: int,
        loop: Curve,
        keep: Callable[[], bool],
        kill_at: int | None = None,
        *,
        kill_while: str | None = None,
    ) -> None:
        """``keep`` keeps the files of the sweep as a kill leaves them, from that event on: while an actor does what
        ``kill_while`` says, if anything, and once there is a state to resume from."""
        super().__init__(Clock(), count)
        self._loop, self._keep, self._kill_at, self._kill_while = loop, keep, kill_at, kill_while
        self.logged: dict[str, dict[int, dict[str, Any]]] = {}
        """What the loops themselves wrote down: for each trial, its reports by their number."""
        self.clones = False
        """Whether trials continue from checkpoints of others."""
        self._saved: dict[TrialActor | None, Any] = {}
        """The last checkpoint of each actor, for which a population waits while it is written."""
        self.asked: dict[int, Callable[[], Any]] = {}
        """What a person does after how many events."""

    def note(self, trial: str, count: int, metrics: Mapping[str, Any], saves: bool) -> None:
        """Write down a report of a loop."""
        reports = self.logged.setdefault(trial, {})
        key = count
        if self.clones:  # a clone goes back: a report is another one if its hyperparameters are
            same = (key for key, report in reports.items() if (report["count"], report["x"]) == (count, metrics["x"]))
            key = next(same, len(reports) + 1)
        # The last one is that which was made last: after a kill, perhaps an earlier one again, which a loop that counts
        # epochs from 1 again may have made at another epoch.
        earlier = reports.pop(key, {"said": []})
        said = [*earlier["said"], metrics.get("epoch")]
        reports[key] = {**metrics, "saves": saves, "count": count, "said": said}

    def next(self, timeout: float | None = None) -> bool:
        if self._is_killed():
            raise KilledError
        for at in [at for at in self.asked if at <= self.handled]:
            self.asked.pop(at)()
        if self._asked_in_vain:
            time.sleep(0.01)  # threads of the sweep, of which it may wait for one, need real time
        return super().next(timeout)

    def _is_killed(self) -> bool:
        doing = {actor.tasks[0].method for actor in self._actors.values() if actor.tasks}
        is_due = self._kill_at is not None and self.handled >= self._kill_at
        return is_due and (self._kill_while is None or self._kill_while in doing) and self._keep()

    def add_actor(self, cls: Any, kwargs: Any, resource_request: Any, **callbacks: Any) -> TrackedActor:
        tracked = super().add_actor(cls, kwargs, resource_request, **callbacks)
        actor = self._actors[tracked]
        trainable = cls.__ray_metadata__.modified_class(**kwargs)
        trainable._new_group = lambda: self._workers_of(actor)
        actor.trainable = trainable  # type: ignore[attr-defined]
        return tracked

    def _workers_of(self, actor: TrialActor) -> Workers:
        return Workers(self._loop, " ".join(f"node:{number}" for number in actor.on), self.note)

    def schedule_actor_task(
        self, tracked_actor: TrackedActor, method_name: str, args: Any = None, kwargs: Any = None,
        on_result: Any = None, on_error: Any = None, _return_future: bool = False,
    ) -> Any:  # fmt: skip
        def told(tracked: TrackedActor, answer: Any) -> None:
            if not isinstance(answer, _Failed):
                (on_result or (lambda *_: None))(tracked, answer)
            elif on_error is not None:
                on_error(tracked, answer.error)

        super().schedule_actor_task(tracked_actor, method_name, args, kwargs, told, on_error, _return_future)
        return partial(self._saved.get, self._actors.get(tracked_actor))

    def _call(self, takes: float, actor: TrialActor, function: Callable[[], Any]) -> None:
        try:
            answer = function()
        except Exception as error:  # of the loop: Ray would hand it to the driver
            answer = _Failed(error)
        self._answer(takes, actor, answer)

    def _train(self, actor: TrialActor, started: float) -> None:
        actor.epoch += 1
        took = REPORT_S * self._noise.uniform(0.9, 1.1) / 1.7 ** math.log2(len(actor.on))
        self._call(took + started, actor, actor.trainable.train)  # type: ignore[attr-defined]

    def _do_save(self, actor: TrialActor) -> None:
        actor.saved_at = actor.epoch

        def save() -> Any:
            self._saved[actor] = None
            self._saved[actor] = actor.trainable.save()  # type: ignore[attr-defined]
            return self._saved[actor]

        self._call(0.2, actor, save)

    def _do_restore(self, actor: TrialActor, saved: Any) -> None:
        actor.begin(actor.config, saved.metrics["training_iteration"])
        self._call(0.2, actor, lambda: actor.trainable.restore(saved))  # type: ignore[attr-defined]

    def _do_reset(self, actor: TrialActor, config: dict[str, Any], *given: Any) -> None:
        actor.storage = storage = given[-1]
        actor.begin(config)
        self._call(0.1, actor, lambda: actor.trainable.reset(dict(config), storage=storage))  # type: ignore[attr-defined]

    def _do_stop(self, actor: TrialActor) -> None:
        actor.trainable.stop()  # type: ignore[attr-defined]
        super()._do_stop(actor)

    def _do_move_to(self, actor: TrialActor, place: Any) -> None:
        super()._do_move_to(actor, place)
        actor.trainable.move_to(place)  # type: ignore[attr-defined]


def keep_files(folder: Path, kept: Path) -> bool:
    """Copy a sweep's folder as a kill would leave it. Returns False, and copies nothing, while there is no state from
    which the sweep could be resumed."""
    if not (folder / STATE_LOG).is_file():
        return False
    shutil.rmtree(kept, ignore_errors=True)
    shutil.copytree(folder, kept, ignore=shutil.ignore_patterns("*.partial*", ".scratch-*"))
    return True
