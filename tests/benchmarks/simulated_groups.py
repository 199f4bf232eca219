"""Worker groups that take no time: Ray Tune's own controller runs with them, on a clock that jumps where it would wait.

:class:`Groups` takes the place of Tune's actor manager (``ray.air.execution._internal.RayActorManager``, Ray 2.60), the
one seam where Tune reaches its actors: it starts one after a while, reports, saves and restores as a trial actor does,
and hands each to Tune at its time. Left out is what Ray itself takes to send a call and to wait for its end.
"""

from __future__ import annotations

import heapq
import itertools
import math
import random
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from ray import tune
from ray.air.execution._internal.tracked_actor import TrackedActor
from ray.train._internal.session import _TrainingResult

from trainables.runtime import names
from trainables.runtime.group.place import Place

START_S, REPORT_S, SAVE_S, RESET_S = 5.0, 10.0, 0.2, 0.1
"""What a group takes to start, to train an epoch, to write or read a checkpoint, and to take another trial."""
FASTER = 1.7
"""By how much an epoch is shorter on twice as many devices."""

_monotonic = time.monotonic


class Clock:
    """The monotonic clock of this process, which can be put forward and held.

    It goes on with real time, or with the CPU time of the thread that made it, where others use the machine, too.
    """

    def __init__(self, *, of_cpu: bool) -> None:
        self._ahead, self._thread = 0.0, threading.get_ident()
        self._of_cpu, self._last = of_cpu, _monotonic()
        time.monotonic = self.now

    def now(self) -> float:
        """Return the seconds of the clock."""
        if not self._of_cpu:
            return _monotonic() + self._ahead
        if threading.get_ident() == self._thread:
            self._last = time.thread_time() + self._ahead
        return self._last

    def wait(self, until: float) -> None:
        """Put the clock forward."""
        self._ahead += max(0.0, until - self.now())

    @contextmanager
    def held(self) -> Iterator[None]:
        """Let what happens inside take no time."""
        began = self.now()
        yield
        self._ahead -= self.now() - began


class Groups:
    """As many groups as there may be, and what they are doing."""

    def __init__(self, clock: Clock, count: int) -> None:
        self.clock, self.count = clock, count
        self._live_actors_to_ray_actors_resources: dict[TrackedActor, Any] = {}  # which Tune reads, too
        self._pending: dict[TrackedActor, Any] = {}
        self._due: list[tuple[float, int, TrackedActor, int, Callable[[], None], float]] = []
        self._order, self._noise = itertools.count(), random.Random(0)
        self._task_of: dict[TrackedActor, int] = {}
        self._free_devices = set(range(count))
        self._trials: dict[TrackedActor, SimpleNamespace] = {}
        self.cpu_s = self.waited_s = 0.0
        """CPU of what the groups do here, below 0, for it is not the driver's; and how long the driver waited."""
        self.worked: list[tuple[float, float]] = []
        """What the groups did: from when, and how long."""
        self.handled = 0
        """Events that Tune was given."""

    def __call__(self, resource_manager: Any) -> Groups:
        """Be the actor manager that Tune makes."""
        return self

    # What Tune asks of its actor manager.

    def add_actor(self, cls: Any, kwargs: Any, resource_request: Any, **callbacks: Any) -> TrackedActor:
        """Start a group as soon as there is a place for it."""
        actor = TrackedActor(uuid.uuid4().int, **callbacks)
        made = SimpleNamespace(config=kwargs["config"], storage=kwargs["storage"], epoch=0, on=[], place=Place(1))
        self._pending[actor] = made
        return actor

    def remove_actor(self, tracked_actor: TrackedActor, kill: bool = False, stop_future: Any = None) -> bool:
        """End a group."""
        if self._pending.pop(tracked_actor, None) is not None:
            return False
        self._after(0.0, tracked_actor, lambda: self._stopped(tracked_actor))
        return True

    def schedule_actor_task(
        self,
        tracked_actor: TrackedActor,
        method_name: str,
        args: tuple[Any, ...] | None = None,
        kwargs: dict[str, Any] | None = None,
        on_result: Callable[..., None] | None = None,
        on_error: Callable[..., None] | None = None,
        _return_future: bool = False,
    ) -> Any:
        """Have a group train, save, restore, take another trial or stop."""
        if method_name == "stop":
            return object()
        with self.clock.held(), self._free():
            trial = self._trials[tracked_actor]
            answer, takes = getattr(self, f"_{method_name}")(trial, *(args or ()), **(kwargs or {}))
        self._after(takes, tracked_actor, lambda: on_result and on_result(tracked_actor, answer))
        return object()

    def next(self, timeout: float | None = None) -> bool:
        """Wait for the next event, and hand it to Tune."""
        for actor in list(self._pending)[: len(self._free_devices)]:
            self._trials[actor] = self._pending.pop(actor)
            self._trials[actor].on = self._take(1, 0)
            self._live_actors_to_ray_actors_resources[actor] = (_Handle(), None)
            self._after(START_S, actor, lambda actor=actor: actor._on_start(actor))  # type: ignore[misc]
        until = self.clock.now() + (math.inf if timeout is None else timeout)
        while self._due and self._due[0][0] <= until:
            due, _, actor, task, happen, took = heapq.heappop(self._due)
            if self._task_of.get(actor) != task:  # Tune has forgotten it
                continue
            self._wait(due)
            self.worked.append((due - took, took))
            self.handled += 1
            happen()
            return True
        self._wait(until)
        return False

    def is_actor_started(self, tracked_actor: TrackedActor) -> bool:
        """Whether a group has begun to start."""
        return tracked_actor in self._live_actors_to_ray_actors_resources

    def is_actor_failed(self, tracked_actor: TrackedActor) -> bool:
        """None fails."""
        return False

    def clear_actor_task_futures(self, tracked_actor: TrackedActor) -> None:
        """Forget what a group was asked."""
        self._task_of.pop(tracked_actor, None)

    def get_live_actors_resources(self) -> dict[str, float]:
        """Nothing is booked."""
        return {}

    def cleanup(self) -> None:
        """End all."""

    @property
    def num_live_actors(self) -> int:
        """Groups that have begun to start."""
        return len(self._live_actors_to_ray_actors_resources)

    @property
    def num_pending_actors(self) -> int:
        """Groups that wait for a place."""
        return len(self._pending)

    @property
    def num_total_actors(self) -> int:
        """All groups."""
        return self.num_live_actors + self.num_pending_actors

    @property
    def num_actor_tasks(self) -> int:
        """What groups are doing."""
        return len(self._task_of)

    def _wait(self, until: float) -> None:
        self.waited_s += max(0.0, until - self.clock.now())
        self.clock.wait(until)

    # What a group does.

    @contextmanager
    def _free(self) -> Iterator[None]:
        """Do not count as the driver's CPU what happens inside."""
        worked = time.thread_time()
        yield
        self.cpu_s -= time.thread_time() - worked

    def _after(self, takes: float, actor: TrackedActor, happen: Callable[[], None]) -> None:
        order = next(self._order)
        self._task_of[actor] = order
        heapq.heappush(self._due, (self.clock.now() + takes, order, actor, order, happen, takes))

    def _stopped(self, actor: TrackedActor) -> None:
        if self._live_actors_to_ray_actors_resources.pop(actor, None) is not None:
            self._free_devices |= {*self._trials[actor].on}
        self._task_of.pop(actor, None)
        if actor._on_stop is not None:
            actor._on_stop(actor)

    def _train(self, trial: SimpleNamespace) -> tuple[dict[str, Any], float]:
        trial.epoch += 1
        started = self._started_s(trial)
        away = abs(math.log10(trial.config["lr"]) + 2.5) / 3 + abs(trial.config["momentum"] - 0.9) / 2
        took = REPORT_S * self._noise.uniform(0.9, 1.1) / FASTER ** math.log2(len(trial.on))
        now = datetime.now()
        return {
            "val_accuracy": max(0.0, 0.9 - away) * (1 - 1 / (1 + trial.epoch)) + 0.01 * self._noise.random(),
            "val_loss": 1 / trial.epoch,
            "train_loss": 1 / trial.epoch,
            names.EPOCH: trial.epoch,
            names.DEVICES: " ".join(f"node:{number}" for number in trial.on),
            names.TRAIN_SECONDS: took,
            names.STEP_SECONDS: took + started,
            **({names.START_SECONDS: started} if started else {}),
            "training_iteration": trial.epoch,
            "done": False,
            "date": now.strftime("%Y-%m-%d_%H-%M-%S"),
            "timestamp": int(now.timestamp()),
            "time_this_iter_s": took,
            "time_total_s": took * trial.epoch,
            "time_since_restore": took * trial.epoch,
            "iterations_since_restore": trial.epoch,
            "pid": 1,
            "hostname": "node",
            "node_ip": "127.0.0.1",
            "config": {name: value for name, value in trial.config.items() if not name.startswith("_")},
        }, took + started

    def _save(self, trial: SimpleNamespace) -> tuple[_TrainingResult, float]:
        folder = Path(trial.storage.trial_fs_path, f"checkpoint_{trial.epoch:06d}")
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "model.pt").write_bytes(b"weights")
        as_it_was = {**vars(trial), "epoch": trial.epoch - 1, "place": Place(len(trial.on))}
        report, _ = self._train(SimpleNamespace(**as_it_was))
        return _TrainingResult(checkpoint=tune.Checkpoint(str(folder)), metrics=report), SAVE_S

    def _restore(self, trial: SimpleNamespace, saved: _TrainingResult) -> tuple[bool, float]:
        trial.epoch = saved.metrics[names.EPOCH]
        return True, SAVE_S

    def _reset(self, trial: SimpleNamespace, config: dict[str, Any], storage: Any) -> tuple[bool, float]:
        trial.config, trial.storage, trial.epoch = config, storage, 0
        trial.place = Place(1)
        return True, RESET_S

    def _go_on_with(self, trial: SimpleNamespace, place: Place) -> tuple[None, float]:
        trial.place = place
        return None, 0.0

    def _started_s(self, trial: SimpleNamespace) -> float:
        """Let a trial move if it is to, and return how long that takes."""
        if trial.place.workers == len(trial.on):
            return 0.0
        self._free_devices |= {*trial.on}
        trial.on = self._take(trial.place.workers, trial.place.leaves)
        return START_S

    def _take(self, count: int, leaves: int) -> list[int]:
        """Return the numbers of devices as Ray hands them out: the lowest."""
        taken = sorted(self._free_devices)[leaves : leaves + count]
        assert len(taken) == count, "not as many are free"
        self._free_devices -= {*taken}
        return taken


class _Handle:
    """Of an actor, of which Tune asks what a report has beside its metrics."""

    get_auto_filled_metrics = SimpleNamespace(remote=lambda **_: {})
