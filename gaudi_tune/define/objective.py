"""The objectives of a sweep: which reported numbers it improves, and which of two values is better."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any, Literal, TypeAlias

from gaudi_tune.base import names
from gaudi_tune.base.errors import SweepError, written

Mode: TypeAlias = Literal["max", "min"]
USUAL_MODES: dict[Mode, set[str]] = {
    "max": {
        "acc", "accuracy", "auc", "auprc", "auroc", "bleu", "dice", "f1", "iou", "likelihood", "meteor", "miou", "mrr",
        "ndcg", "precision", "psnr", "r2", "recall", "return", "reward", "rouge", "sacrebleu", "ssim", "throughput",
    },
    "min": {
        "bce", "brier", "cer", "crossentropy", "err", "error", "fid", "latency", "logloss", "loss", "mae", "mape",
        "mse", "nll", "perplexity", "ppl", "rmse", "rmsle", "wer",
    },
}  # fmt: skip
"""Words in the names of metrics that say whether they are maximized or minimized."""
QUALIFIERS = {
    "absolute", "all", "at", "average", "avg", "balanced", "bits", "char", "clean", "cls", "cumulative", "dev",
    "episode", "epoch", "eval", "final", "k", "l", "last", "log", "lsum", "macro", "mean", "median", "micro",
    "nats", "overall", "p", "pr", "rate", "roc", "root", "score", "squared", "step", "sum", "test", "top",
    "total", "train", "training", "val", "valid", "validation", "weighted", "word",
}  # fmt: skip
"""Words beside such a word that leave its meaning as it is: ``error_rate``, but not ``error_reduction``."""
SHARES = {"acc", "accuracy", "auc", "auprc", "auroc", "dice", "f1", "iou", "miou", "mrr", "ndcg", "precision", "recall"}
"""Words in the names of metrics that lie between 0 and 1, or 0 and 100 %."""
VOCABULARY = QUALIFIERS.union(*USUAL_MODES.values())
"""All words that a metric may have whose mode follows from its name."""
FORMULA = re.compile(r"(^|[\s(/:._\[])[\d.]*[-/]|[*^+=<>!~]|[^\x00-\x7f]")
"""What a name has that computes with a metric, such as 1-f1, val/1-f1 and -loss; mathematics has signs beyond ASCII."""


def usual_mode(metric: str) -> Mode | None:
    """Return whether a metric of this name is usually maximized or minimized; None unless the whole name says so: each
    of its words is known, none speaks against another, and none comes twice, as in train_loss/val_loss."""
    words = _words_of(metric)
    modes: set[Mode] = {mode for mode, telling in USUAL_MODES.items() if telling.intersection(words)}
    modes = modes or ({"max"} if "score" in words else set())
    is_clear = len(modes) == 1 and VOCABULARY.issuperset(words) and len({*words}) == len(words)
    return modes.pop() if is_clear and not FORMULA.search(metric) else None


def bounds_of(metric: str, values: Collection[float]) -> tuple[float, float]:
    """Return between which numbers a metric with this name and these values lies.

    >>> bounds_of("test_accuracy", [0.69, 0.9]), bounds_of("top5_acc", [69.1, 90.4]), bounds_of("loss", [0.2])
    ((0.0, 1.0), (0.0, 100.0), (-inf, inf))
    """
    if SHARES.isdisjoint(_words_of(metric)) or min(values) < 0 or max(values) > 100:
        return -math.inf, math.inf
    return 0.0, 1.0 if max(values) <= 1 else 100.0


def _words_of(metric: str) -> list[str]:
    text = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", metric).lower().replace("cross_entropy", "crossentropy")
    return re.findall(r"f1|r2|[^\W\d_]+", text)


def suggestion(metric: str) -> str:
    """Return a question that names a metric whose words are known, if this name nearly has them; "" if not.

    >>> suggestion("val_los"), suggestion("val_loss"), suggestion("my_number")
    (" (did you mean 'val_loss'?)", '', '')
    """

    def corrected(word: re.Match[str]) -> str:
        # Inaccuracy is no accuracy that is misspelt.
        candidates = [entry for entry in VOCABULARY if entry not in word[0] or entry == word[0]]
        return next(iter(get_close_matches(word[0], candidates, n=1, cutoff=0.8)), word[0])

    name = re.sub(r"[^\W\d_]{3,}", corrected, metric)
    return f" (did you mean {name!r}?)" if name != metric and usual_mode(name) else ""


@dataclass(frozen=True)
class Objective:
    """The metric that a sweep improves."""

    name: str
    """The metric, as the train loop reports it."""
    mode: Mode = "max"
    """Whether more or less of it is better."""
    inferred: bool = field(default=False, compare=False)
    """Whether the mode follows from the name."""

    def __post_init__(self) -> None:
        _check_metric(self.name)

    @classmethod
    def of(cls, name: str, mode: Mode | None) -> Objective:
        """Return the objective of a metric. A mode that is None follows from the metric's name.

        Raises:
            SweepError: The name does not say whether more or less is better, or there can be no such objective.
        """
        if mode is not None:
            return cls(name, mode)
        _check_metric(name)
        usual = usual_mode(name)
        if usual is None:
            raise SweepError(
                f"mode must be given for the metric {name!r}{suggestion(name)}, whose name does not say whether more "
                f"or less of it is better; give mode='max' or mode='min'"
            )
        return cls(name, usual, inferred=True)

    def better(self, value: float, than: float) -> bool:
        """Whether ``value`` is strictly better than the other value."""
        return value > than if self.maximizes else value < than

    def better_of(self, value: float, earlier: float | None) -> float:
        """Return the better of a value and an earlier one, if there is one."""
        return value if earlier is None or self.better(value, than=earlier) else earlier

    def best(self, values: Iterable[float]) -> float:
        """Return the best of the values, of which there must be at least one."""
        return max(values, key=self.score)

    @property
    def maximizes(self) -> bool:
        """Whether more is better."""
        return self.mode == "max"

    @property
    def direction(self) -> Literal["maximize", "minimize"]:
        """Optuna's word for the mode."""
        return "maximize" if self.maximizes else "minimize"

    @property
    def rule(self) -> str:
        """The mode in words."""
        return "more is better" if self.maximizes else "less is better"

    def value_in(self, metrics: Mapping[str, Any]) -> float:
        """Return the value of the objective in a report, or NaN if the report does not have it."""
        return float(metrics.get(self.name, math.nan))

    def score(self, value: float) -> float:
        """Return ``value``, negated if less is better: of two scores, the larger one is always the better one."""
        return value if self.maximizes else -value

    def leads(self, value: float, trial: int, best: tuple[float, int] | None) -> bool:
        """Whether a value becomes the best of the sweep.

        A value that is not finite never does. Of two equal values, the one of the lower trial number is the best,
        whichever was reported first.

        Args:
            value: The new value.
            trial: The number of the trial that has reported it.
            best: The best value so far and its trial; None if there is none.
        """
        if best is None or not math.isfinite(value):
            return math.isfinite(value)
        return self.better(value, than=best[0]) or (value == best[0] and trial < best[1])

    def __str__(self) -> str:
        return f"{self.mode} {self.name}"


def _check_metric(name: str) -> None:
    if not name or name != name.strip() or not name.isprintable():
        raise SweepError(
            f"metric must be the name of one number that the train loop reports, but got {written(name)}; give it as a "
            f"text, such as 'val_loss'"
        )
    if not names.is_reported(name):
        is_rays = name in names.SET_BY_TUNE or name.startswith(names.HYPERPARAMETERS)
        raise SweepError(
            f"metric must be a name that {'Ray Tune' if is_rays else 'the sweep'} does not set itself, but got "
            f"{name!r}; report the number under another name, such as 'my_{name}'"
        )


def point_in(objectives: Sequence[Objective], metrics: Mapping[str, Any]) -> tuple[float, ...]:
    """Return the point of a report: its values of the objectives, or NaN where it has none."""
    return tuple(objective.value_in(metrics) for objective in objectives)


def scores_of(objectives: Sequence[Objective], point: Sequence[float]) -> tuple[float, ...]:
    """Return the score of each value of a point. The first objective leads: of two points, the better has the larger
    tuple of scores."""
    return tuple(objective.score(value) for objective, value in zip(objectives, point, strict=True))
