"""The tasks of the scoreboard: learning curves that others published, as tables and as LCBench's surrogate."""

from __future__ import annotations

import copy
import json
import math
import pickle
from collections.abc import Callable, Mapping, Sequence
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import numpy as np

from tests.tools.benchmarks.strategies import Array, Curve, Take, Trial

TABLES = Path(__file__).resolve().parent / "public_tables"
WORST = 1e9
"""The lowest loss of a sweep that has not seen a finite one."""
LOOKED_AT = 2000
"""How many random points are looked at for the best and the ninth decile."""
TRANSLATIONS = {
    ("finetune", "fr-en"): (1, 20),
    ("finetune", "zh-en"): (1, 20),
    ("scratch", "robust19-en-ja"): (8, 27),
    ("scratch", "robust19-ja-en"): (8, 27),
}
"""Tasks of NMTLC, the checkpoints of an epoch, and the epochs. In the other four the first checkpoints decide."""
HYPERPARAMETERS = {
    "finetune": ("bpe", "model_size", "num_layers", "r", "batch_size", "initial_lr"),
    "scratch": ("bpe", "model_size", "ff_num_hidden", "num_layers", "initial_lr"),
}
"""Their hyperparameters, as places among the values that there are. Others follow from these; bpe says which LLM it is.
"""


class Task:
    """A table of curves."""

    objectives = 1
    sign = 1
    """-1 if what is worst is to be found."""

    def __init__(self, name: str, u: Array, loss: Array, sec: Array) -> None:
        self.name, self.u, self.loss, self.sec = name, u, loss, sec
        self.dimensions, self.epochs = self.u.shape[1], self.loss.shape[1]

    def opened(self) -> Take:
        """Return what gives the curves of one sweep."""
        unused = np.ones(len(self.u), dtype=bool)

        def take(point: Array) -> Curve | None:
            if not unused.any():
                return None
            row = int(np.where(unused, ((self.u - point) ** 2).sum(axis=1), math.inf).argmin())
            unused[row] = False
            return self.u[row], lambda epoch: (self.sign * float(self.loss[row, epoch - 1]), float(self.sec[row]))

        return take

    def measure(self) -> Callable[[Trial, float], float]:
        """Return what says, of a report, how good one sweep is then; less is better."""
        return lambda trial, loss: loss


class PlainData(pickle.Unpickler):
    """Reads numbers, words, lists and dictionaries; whatever could run code is an error."""

    def find_class(self, module: str, name: str) -> Any:
        raise pickle.UnpicklingError(f"{module}.{name} is no plain data")


def translations(file: Path) -> list[Task]:
    """Return the tables of NMTLC: the logarithm of the perplexity, each epoch as many checkpoints as
    :data:`TRANSLATIONS` says. A curve that ended before stays where it was, and every epoch takes equally long.
    """
    with file.open("rb") as content:
        runs = PlainData(content).load()
    tables = []
    for (task, data), (each, epochs) in TRANSLATIONS.items():
        curves = [run["perplexity_curve"] for run in runs if (run["task"], run["dataset_name"]) == (task, data)]
        given = [run["hyperparams"] for run in runs if (run["task"], run["dataset_name"]) == (task, data)]
        columns = [np.unique([row[name] for row in given], return_inverse=True)[1] for name in HYPERPARAMETERS[task]]
        ends = each * np.arange(1, epochs + 1)
        loss = np.log([np.array(curve)[np.minimum(ends, len(curve)) - 1] for curve in curves])
        u = np.stack([column / column.max() for column in columns], axis=1)
        tables.append(Task(f"nmtlc_{task}_{data}", u, loss, np.ones(len(u))))
    return tables


class LCBench(Task):
    """A task of LCBench's surrogate. Its first epoch is the untrained network, and is left out."""

    def __init__(self, session: Any, name: str, number: int, ranges: Mapping[str, Sequence[Any]]) -> None:
        self.name, self.dimensions, self.epochs = f"lcbench_{name}", len(ranges), 51
        self.session, self.number, self.ranges = session, number, ranges

    def opened(self) -> Take:
        return self.curve

    def values(self, point: Array) -> list[float]:
        """Return the hyperparameters of a point as the surrogate takes them."""
        values = []
        for u, (low, high, *kind) in zip(point, self.ranges.values(), strict=True):
            log = "log" in str(kind)
            value = math.exp(math.log(low) + u * math.log(high / low)) if log else low + u * (high - low)
            values.append(round(value) if "integer" in str(kind) else value)
        return values

    def ask(self, inputs: Array) -> Array:
        """Return seconds so far and loss of each row of epoch and hyperparameters; (2, rows)."""
        tasks = np.full((len(inputs), 1), self.number, dtype=np.int32)
        seconds, accuracy = self.session.run(None, {"x_cat": tasks, "x_cont": inputs})[0].astype(float)[:, :2].T
        return np.array([seconds, self.sign * (1 - accuracy / 100)])

    def curve(self, point: Array) -> Curve:
        values = self.values(point)
        known: list[tuple[float, float]] = []

        def at(epoch: int) -> tuple[float, float]:
            if epoch > len(known):  # most trials are stopped soon
                until = next(end for end in (1, 3, 9, 27, self.epochs) if end >= epoch)
                inputs = np.array([[1 + e, *values] for e in range(len(known), until + 1)], dtype=np.float32)
                seconds, losses = self.ask(inputs)
                known.extend(zip(losses[1:], np.maximum(np.diff(seconds), 1e-3), strict=True))
            return known[epoch - 1]

        return point, at


class WithSeconds(LCBench):
    """A task with two objectives: the loss, and the seconds of an epoch, which are those of the whole training over its
    epochs, because from epoch to epoch the surrogate is rough."""

    objectives = 2

    def __init__(self, task: LCBench) -> None:
        super().__init__(task.session, f"{task.name}_seconds", task.number, task.ranges)
        self.name = f"{task.name}_seconds"

    def in_full(self, points: Sequence[Array]) -> Array:
        """Return the loss and the logarithm of the seconds of configurations that are trained in full; (points, 2)."""
        inputs = np.array([[1 + self.epochs, *self.values(point)] for point in points], dtype=np.float32)
        seconds, losses = self.ask(inputs)
        return np.stack([losses, np.log(np.maximum(seconds, 1e-3) / self.epochs)], axis=1)

    @cached_property
    def scale(self) -> Array:
        """The least and the ninth decile of both, of random configurations; (2, 2)."""
        return np.quantile(
            self.in_full([*np.random.default_rng(0).random((LOOKED_AT, self.dimensions))]), [0, 0.9], axis=0
        )

    def curve(self, point: Array) -> Curve:
        losses = super().curve(point)[1]
        # Far from what it was made of, the surrogate may say anything.
        seconds = math.exp(max(self.in_full([point])[0, 1], self.scale[0, 1]))
        return point, lambda epoch: (losses(epoch)[0], seconds)

    def measure(self) -> Callable[[Trial, float], float]:
        front: list[tuple[float, float]] = []

        def not_dominated(trial: Trial, loss: float) -> float:
            values = np.array([loss, math.log(trial.curve[1](trial.epoch)[1])])
            x, y = (values - self.scale[0]) / (self.scale[1] - self.scale[0])
            front[:] = front_of([*front, (float(x), float(y))])
            return 1 - dominated(front)

        return not_dominated


def front_of(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return the points that no other dominates, by their first value; less of both is better."""
    front: list[tuple[float, float]] = []
    for x, y in sorted(points):
        if not front or y < front[-1][1]:
            front.append((x, y))
    return front


def dominated(front: Sequence[tuple[float, float]]) -> float:
    """Return the area below 1 in both values that a front dominates."""
    inside = [(x, y) for x, y in front if x < 1 and y < 1]
    return sum((1 - x) * (above - y) for (x, y), above in zip(inside, [1.0, *(y for _, y in inside)], strict=False))


@cache
def find_tasks(folder: Path) -> list[Task]:
    """Return the tasks of a folder by name; each process reads them once."""
    tasks: list[Task] = []
    for file in folder.glob("*.npz"):
        with np.load(file) as table:
            tasks.append(Task(file.stem, table["u"], table["loss"], table["sec"]))
    if (folder / "nmtlc.pkl").is_file():
        tasks += translations(folder / "nmtlc.pkl")
    if (folder / "lcbench.onnx").is_file():
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        session = onnxruntime.InferenceSession(folder / "lcbench.onnx", options)
        about = json.loads((folder / "lcbench.json").read_text())
        tasks += [LCBench(session, name, number, about["ranges"]) for name, number in about["tasks"].items()]
    return sorted(tasks, key=lambda task: task.name)


@cache
def with_seconds(folder: Path) -> list[Task]:
    """Return the tasks of a folder that can have two objectives, with two."""
    return [WithSeconds(task) for task in find_tasks(folder) if isinstance(task, LCBench)]


def find_task(folder: Path, name: str) -> Task:
    return next(task for task in [*find_tasks(folder), *with_seconds(folder)] if task.name == name)


def earlier_task(folder: Path, task: Task, kind: str, seed: int) -> Task:
    """Return the task of the earlier sweep that a sweep of this one learns from."""
    tasks = find_tasks(folder)
    half = tasks[tasks.index(task) % 2 :: 2]
    family = [one for one in half if type(one) is type(task) and one.dimensions == task.dimensions and one is not task]
    source = copy.copy(family[seed % len(family)] if kind == "related" else task)
    source.sign = -1 if kind == "reversed" else 1
    return source
