"""Worker groups that take no time: Ray Tune's own controller runs with them, on a clock that jumps where it would wait.

:class:`Groups` takes the place of Tune's actor manager (``ray.air.execution._internal.RayActorManager``, Ray 2.60), the
one seam where Tune reaches its actors. A trial actor starts at once and does one thing after another, as a
:class:`~gaudi_tune.group.warm_trainable.WarmTrainable` does: its first step waits until its group has devices,
and it keeps them from trial to trial. Devices are handed out as Ray does: the lowest that are free, to the group that
asked first of those that there are enough for. Left out is what Ray itself takes to send a call and wait for its end.

What a sweep must never do is an :class:`ImpossibleError`: a group on devices that may not train together, two groups on
one device, or trials that wait for what can never come.
"""

from __future__ import annotations

import heapq
import itertools
import math
import random
import uuid
from collections.abc import Callable, Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from ray import tune
from ray.air.execution._internal.tracked_actor import TrackedActor
from ray.train._internal.session import _TrainingResult

from gaudi_tune.base import names
from gaudi_tune.base.trial_place import Place
from gaudi_tune.devices.hpu import HPU
from gaudi_tune.group.device_numbers import FREED_WITHIN_S
from tests.helpers.simulated_actors import USUAL, Clock, Task, TrialActor

START_S, REPORT_S, SAVE_S, RESET_S, END_S = 5.0, 10.0, 0.2, 0.1, 0.2
"""What a group takes to start, to train an epoch, to write or read a checkpoint, to take another trial, and to end."""
FASTER = 1.7
"""By how much an epoch is shorter on twice as many devices."""
IDLE_S = 2.0
"""How far the clock jumps at most where nothing is due: with Tune's 0.1 s, of 49,800 steps 48,400 had no event."""
HANGS_AFTER = 100
"""How often Tune asks for an event, and asks nothing of an actor in between, before it is clear that none will come."""


class ImpossibleError(Exception):
    """The sweep has come to where no sweep may come."""


class Groups:
    """As many devices as there are, and what the trial actors and their groups are doing."""

    def __init__(self, clock: Clock, count: int) -> None:
        self.clock, self.count = clock, count
        self._live_actors_to_ray_actors_resources: dict[TrackedActor, Any] = {}  # which Tune reads, too
        self._pending: dict[TrackedActor, None] = {}
        self._actors: dict[TrackedActor, TrialActor] = {}
        self._due: list[tuple[float, int, TrialActor, Task, Callable[[], None]]] = []
        self._order, self._noise = itertools.count(), random.Random(0)
        self._free_devices = set(range(count))
        self._waiting: list[TrialActor] = []  # for devices
        self._asked_in_vain = 0
        self.handled = 0
        """Events that Tune was given."""
        self.in_vain = 0
        """How often a group did not get the devices that it was to have."""
        self.longest_wait_s = 0.0
        """How long a group has waited for its devices at most."""

    def __call__(self, resource_manager: Any) -> Groups:
        """Be the actor manager that Tune makes."""
        return self

    # What Tune asks of its actor manager.

    def add_actor(self, cls: Any, kwargs: Any, resource_request: Any, **callbacks: Any) -> TrackedActor:
        """Start a trial actor at once: it books no device."""
        actor = TrackedActor(uuid.uuid4().int, **callbacks)
        self._actors[actor] = TrialActor(kwargs["config"], kwargs["storage"])
        self._pending[actor] = None
        return actor

    def remove_actor(self, tracked_actor: TrackedActor, kill: bool = False, stop_future: Any = None) -> bool:
        """End a trial actor and its group, after what it was asked before."""
        if tracked_actor in self._pending:
            del self._pending[tracked_actor], self._actors[tracked_actor]
            return False
        actor = self._actors[tracked_actor]
        if actor.tasks and actor.tasks[0].method == "start":
            tracked_actor.set_on_stop(None)
            kill = True
        if kill:
            actor.tasks.clear()
            self._waiting = [other for other in self._waiting if other is not actor]
        self._ask(actor, Task("stop", tell=lambda _: self._stopped(tracked_actor)))
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
        """Have a trial actor train, save, restore, take another trial or go on elsewhere."""
        if method_name != "stop":  # Tune removes the actor then
            given = (*(args or ()), *(kwargs or {}).values())
            tell = on_result or (lambda *_: None)
            self._ask(self._actors[tracked_actor], Task(method_name, given, lambda answer: tell(tracked_actor, answer)))
        return object()

    def next(self, timeout: float | None = None) -> bool:
        """Wait for the next event, and hand it to Tune."""
        for tracked in list(self._pending):
            del self._pending[tracked]
            self._live_actors_to_ray_actors_resources[tracked] = (_Handle(), None)
            start = Task("start", tell=lambda _, actor=tracked: actor._on_start(actor))  # type: ignore[misc]
            self._ask(self._actors[tracked], start)
        until = self.clock.now() + (math.inf if timeout is None else max(timeout, IDLE_S))
        handled = self.handled
        while self.handled == handled:
            self._hand_out()
            if not self._due or self._due[0][0] > until:
                break
            due, _, actor, task, happen = heapq.heappop(self._due)
            if actor.tasks and actor.tasks[0] is task:  # else it was killed
                self.clock.wait(due)
                happen()
        else:
            self._asked_in_vain = 0
            return True
        self._asked_in_vain = 0 if self._due else self._asked_in_vain + 1
        if self._asked_in_vain > HANGS_AFTER or (not self._due and timeout is None):
            raise ImpossibleError(f"nothing can happen any more, and trials remain: {self._in_words()}")
        self.clock.wait(until)
        return False

    def is_actor_started(self, tracked_actor: TrackedActor) -> bool:
        """Whether an actor has begun to start."""
        return tracked_actor in self._live_actors_to_ray_actors_resources

    def is_actor_failed(self, tracked_actor: TrackedActor) -> bool:
        """None fails."""
        return False

    def clear_actor_task_futures(self, tracked_actor: TrackedActor) -> None:
        """Tell Tune nothing of what an actor was asked; it does it all the same."""
        for task in self._actors[tracked_actor].tasks:
            if task.method not in ("start", "stop"):
                task.tell = None

    def get_live_actors_resources(self) -> dict[str, float]:
        """Nothing is booked."""
        return {}

    def cleanup(self) -> None:
        """End all."""

    @property
    def num_live_actors(self) -> int:
        """Actors that have begun to start."""
        return len(self._live_actors_to_ray_actors_resources)

    @property
    def num_pending_actors(self) -> int:
        """Actors that have not."""
        return len(self._pending)

    @property
    def num_total_actors(self) -> int:
        """All actors."""
        return self.num_live_actors + self.num_pending_actors

    @property
    def num_actor_tasks(self) -> int:
        """What actors are asked; Tune's own manager need not count it."""
        return sum(len(actor.tasks) for actor in self._actors.values())

    # Who has which device.

    def _hand_out(self) -> None:
        """Give free devices to the groups that wait for some."""
        for actor in list(self._waiting):
            place = actor.place
            if place.numbers:
                actor.booked += self._take([one for one in self._free_devices if one <= max(place.numbers)])
                if not {*place.numbers} <= {*actor.booked}:
                    continue
                actor.on = place.numbers
                actor.booked = self._give_back(tuple({*actor.booked} - {*place.numbers}))
            elif place.workers <= len(self._free_devices):
                actor.on = self._take(sorted(self._free_devices)[: place.workers])
            else:
                continue
            self._waiting.remove(actor)
            actor.group = place
            self._check_owners()
            self._start(actor)

    def _take(self, devices: Iterable[int]) -> tuple[int, ...]:
        taken = tuple(devices)
        self._free_devices -= {*taken}
        return taken

    def _check_owners(self) -> None:
        owners = [device for actor in self._actors.values() for device in (*actor.on, *actor.booked)]
        if len(owners) + len(self._free_devices) != self.count:
            raise ImpossibleError(f"a device has two owners, or none: {self._in_words()}")

    def _give_back(self, devices: tuple[int, ...]) -> tuple[int, ...]:
        self._free_devices |= {*devices}
        return ()

    def _in_words(self) -> str:
        """Say who has which devices, and who waits for how many."""
        has = [f"{actor.config} has {actor.on}, books {actor.booked}" for actor in self._actors.values() if actor.on]
        waits = [f"{actor.config} waits for {actor.place}, books {actor.booked}" for actor in self._waiting]
        return "; ".join([*has, *waits, f"free: {sorted(self._free_devices)}"])

    # What a trial actor does.

    def _ask(self, actor: TrialActor, task: Task) -> None:
        self._asked_in_vain = 0
        actor.tasks.append(task)
        if len(actor.tasks) == 1:
            self._do_next(actor)

    def _do_next(self, actor: TrialActor) -> None:
        """Begin with what the actor was asked first."""
        if not actor.tasks:
            return
        task = actor.tasks[0]
        task.began = self.clock.now()
        getattr(self, f"_do_{task.method}")(actor, *task.args)

    def _after(self, takes: float, actor: TrialActor, happen: Callable[[], None]) -> None:
        heapq.heappush(self._due, (self.clock.now() + takes, next(self._order), actor, actor.tasks[0], happen))

    def _answer(self, takes: float, actor: TrialActor, answer: Any = None) -> None:
        """Have the actor be done with what it does after so many seconds."""

        def done() -> None:
            task = actor.tasks.popleft()
            self._do_next(actor)
            if task.tell is not None:
                self.handled += 1
                task.tell(answer)

        self._after(takes, actor, done)

    def _do_start(self, actor: TrialActor) -> None:
        self._answer(0.0, actor)

    def _do_stop(self, actor: TrialActor) -> None:
        self._end_group(actor, lambda: self._answer(0.0, actor))

    def _stopped(self, tracked_actor: TrackedActor) -> None:
        del self._live_actors_to_ray_actors_resources[tracked_actor], self._actors[tracked_actor]
        if tracked_actor._on_stop is not None:
            tracked_actor._on_stop(tracked_actor)

    def _do_train(self, actor: TrialActor) -> None:
        if actor.next_place is not None and actor.saved_at == actor.epoch:
            actor.place, actor.next_place = actor.next_place, None
        if actor.group == actor.place:
            self._train(actor, 0.0)
        else:
            self._end_group(actor, lambda: self._wait_for_devices(actor))

    def _wait_for_devices(self, actor: TrialActor) -> None:
        """Have a group wait for devices; for those of certain numbers only so long."""

        def in_vain() -> None:
            if actor in self._waiting:
                self._waiting.remove(actor)
                self.in_vain += 1
                actor.booked, actor.place = self._give_back(actor.booked), USUAL
                self._wait_for_devices(actor)

        self._waiting.append(actor)
        if actor.place.numbers:
            self._after(FREED_WITHIN_S, actor, in_vain)

    def _end_group(self, actor: TrialActor, then: Callable[[], None]) -> None:
        """End the group of an actor, if it has one, and go on after that."""

        def ended() -> None:
            actor.on, actor.booked = self._give_back(actor.on), self._give_back(actor.booked)
            actor.group = None
            then()

        self._after(END_S if actor.group is not None else 0.0, actor, ended)

    def _start(self, actor: TrialActor) -> None:
        """Start a group that has its devices."""
        waited = self.clock.now() - actor.tasks[0].began
        self.longest_wait_s = max(self.longest_wait_s, waited)
        if len(actor.on) > 1 and (why := HPU.placement_problem(actor.on)):
            raise ImpossibleError(f"{why}: {self._in_words()}")
        self._after(START_S, actor, lambda: self._train(actor, waited + START_S))

    def _train(self, actor: TrialActor, started: float) -> None:
        """Train an epoch, after a start that took so long."""
        actor.epoch += 1
        took = REPORT_S * self._noise.uniform(0.9, 1.1) / FASTER ** math.log2(len(actor.on))
        actor.report = self._report(actor, took, started)
        self._answer(took, actor, dict(actor.report))

    def _report(self, actor: TrialActor, took: float, started: float) -> dict[str, Any]:
        away = abs(math.log10(actor.config["lr"]) + 2.5) / 3 + abs(actor.config["momentum"] - 0.9) / 2
        return {
            "val_accuracy": max(0.0, 0.9 - away) * (1 - 1 / (1 + actor.epoch)) + 0.01 * self._noise.random(),
            "train_loss": 1 / actor.epoch,
            names.EPOCH: actor.epoch,
            names.DEVICES: " ".join(f"node:{number}" for number in actor.on),
            names.TRAIN_SECONDS: took,
            names.STEP_SECONDS: took + started,
            **({names.START_SECONDS: started} if started else {}),
            **({names.WORKERS: len(actor.on)} if len(actor.on) != USUAL.workers else {}),
            "training_iteration": actor.epoch,
            "done": False,
            "time_total_s": took * actor.epoch,
        }

    def _do_save(self, actor: TrialActor) -> None:
        folder = Path(actor.storage.trial_fs_path, f"checkpoint_{actor.epoch:06d}")
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "model.pt").write_bytes(b"weights")
        actor.saved_at = actor.epoch
        saved = _TrainingResult(checkpoint=tune.Checkpoint(str(folder)), metrics=dict(actor.report))
        self._answer(SAVE_S, actor, saved)

    def _do_restore(self, actor: TrialActor, saved: _TrainingResult) -> None:
        actor.begin(actor.config, saved.metrics[names.EPOCH])
        self._answer(SAVE_S, actor, True)

    def _do_reset(self, actor: TrialActor, config: dict[str, Any], *given: Any) -> None:
        actor.storage = given[-1]  # before it, Ray 2.53 gives what makes a logger
        actor.begin(config)
        self._answer(RESET_S, actor, True)

    def _do_move_to(self, actor: TrialActor, place: Place) -> None:
        actor.next_place = None if place == actor.place else place
        self._answer(0.0, actor)


class _Handle:
    """Of an actor, of which Tune asks what a report has beside its metrics."""

    get_auto_filled_metrics = SimpleNamespace(remote=lambda **_: {})
