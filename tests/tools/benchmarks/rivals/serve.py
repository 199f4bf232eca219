"""The rival's side of the protocol: a process that reads calls, a line of JSON each, and answers each with a line.

A call is one method and its arguments, ``{"tell": {"trial": 3, "epoch": 1, "loss": 0.7, "ended": false}}``:

- begin: kind, seed, dimensions, epochs (the most of a trial), workers; a new sweep
- ask: nothing; the answer has a trial, and its point in the unit cube if it is new; {} if none is to train now
- began: trial and point where it was measured, null if there is none left
- tell: trial, epoch, loss (null: not finite), ended (it cannot go on); the answer has CONTINUE, PAUSE or STOP

Each answer also has cpu, the seconds of CPU since the sweep began. Knows the standard library alone, and so runs in
every environment.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any, TypeAlias

Point: TypeAlias = list[float]
Loss: TypeAlias = "float | None"


def serve(make: Callable[..., Any]) -> None:
    """Answer each call until the input ends, where the first argument says: a file descriptor."""
    answers = os.fdopen(int(sys.argv[1]), "w")
    rival: Any = None
    before = 0.0
    answer: dict[str, Any]
    for line in sys.stdin:
        ((call, given),) = json.loads(line).items()
        if call == "begin":
            rival, before, answer = make(**given), time.process_time(), {}
        else:
            answer = getattr(rival, call)(**given) or {}
        print(json.dumps({**answer, "cpu": time.process_time() - before}), file=answers, flush=True)


class Asha:
    """Ray's ASHA with reduction 3 and grace 1, for what only proposes; it learns the last loss of each ended trial."""

    def __init__(self, epochs: int) -> None:
        self.points: dict[int, Point] = {}
        self.rungs: dict[int, dict[int, float]] = {3**k: {} for k in range(9, -1, -1) if 3**k < epochs}

    def propose(self) -> Point:
        """Return where to try next."""
        raise NotImplementedError

    def learn(self, trial: int, loss: Loss) -> None:
        """Hear how a trial ended; its point is in points."""

    def ask(self) -> dict[str, Any]:
        return {"trial": len(self.points), "point": self.propose()}

    def began(self, trial: int, point: Point | None) -> None:
        if point:
            self.points[trial] = point

    def tell(self, trial: int, epoch: int, loss: Loss, ended: bool) -> dict[str, Any]:
        if ended or loss is None or self.weak(trial, epoch, loss):
            self.learn(trial, loss)
            return {"decision": "STOP"}
        return {"decision": "CONTINUE"}

    def weak(self, trial: int, epoch: int, loss: float) -> bool:
        """Return whether the loss is outside the best third of those that came to its rung before."""
        for rung, losses in self.rungs.items():
            if rung <= epoch and trial not in losses:
                before = list(losses.values())
                losses[trial] = loss
                cut = statistics.quantiles(before, n=3, method="inclusive")[0] if len(before) > 1 else sum(before)
                return bool(before) and loss > cut
        return False


class Budgets:
    """For what gives a configuration and how far to train it: one that was given before continues where it was."""

    def __init__(self) -> None:
        self.trials: dict[Any, int] = {}
        self.jobs: dict[int, tuple[Any, int]] = {}
        self.losses: dict[int, list[Loss]] = {}

    def job(self) -> tuple[Any, Any, Point, int] | None:
        """Return a job, what its configuration is known by, the point, and the epoch at which it is to end."""
        raise NotImplementedError

    def done(self, job: Any, loss: Loss, epochs: int) -> None:
        """Hear the loss of a job at its end, and the epochs that it took."""
        raise NotImplementedError

    def ask(self) -> dict[str, Any]:
        while found := self.job():
            job, key, point, until = found
            if key not in self.trials or self.trials[key] in self.jobs:  # new, or twice at once: trained twice
                self.trials[key] = len(self.losses)
            trial = self.trials[key]
            losses = self.losses.setdefault(trial, [])
            if len(losses) < until and None not in losses:
                self.jobs[trial] = job, until
                return {"trial": trial} if losses else {"trial": trial, "point": point}
            self.done(job, losses[until - 1] if len(losses) >= until else None, 0)
        return {}

    def began(self, trial: int, point: Point | None) -> None:
        pass

    def tell(self, trial: int, epoch: int, loss: Loss, ended: bool) -> dict[str, Any]:
        self.losses[trial].append(loss)
        job, until = self.jobs[trial]
        if epoch < until and not ended:
            return {"decision": "CONTINUE"}
        del self.jobs[trial]
        self.done(job, loss, epoch)
        return {"decision": "PAUSE"}
