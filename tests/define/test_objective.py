"""Which value is better, and which one leads a sweep."""

from __future__ import annotations

import math
import re
from dataclasses import replace

import pytest
from ray.tune.result import AUTO_RESULT_KEYS, DONE, EXPERIMENT_TAG, SHOULD_CHECKPOINT, TRIAL_ID

from gaudi_tune import SweepError
from gaudi_tune.base import names
from gaudi_tune.define.objective import Objective, usual_mode
from tests.helpers.quadratic import QUADRATIC


@pytest.mark.parametrize(
    ("value", "trial", "best", "leads"),
    [
        (0.1, 7, None, True),
        (0.2, 7, (0.1, 2), True),
        (0.1, 7, (0.2, 2), False),
        (0.1, 7, (0.1, 2), False),
        (0.1, 1, (0.1, 2), True),  # it reports later, and has the lower number
        (math.nan, 1, (0.1, 2), False),
        (math.nan, 1, None, False),
    ],
)
def test_lower_number_leads_among_equal_values(
    value: float, trial: int, best: tuple[float, int] | None, leads: bool
) -> None:
    assert Objective("score", "max").leads(value, trial, best) is leads


def test_less_is_better_in_mode_min() -> None:
    loss = Objective("val_loss", "min")
    assert loss.better(0.1, than=0.2)
    assert not loss.better(0.1, than=0.1)
    assert loss.leads(0.1, 7, (0.2, 2))
    assert not loss.leads(math.inf, 7, None)


@pytest.mark.parametrize(
    "name",
    [
        "loss", "val_loss", "valLoss", "eval/loss", "loss_epoch", "error_rate", "top5_error",
        "perplexity", "rmse", "mae", "wer", "val_loss-1", "latency_p99", "MSE", "mean_squared_error",
        "cross_entropy", "log_loss", "fid_score", "brier_score",
    ],
)  # fmt: skip
def test_a_loss_is_minimized(name: str) -> None:
    assert usual_mode(name) == "min"
    assert Objective.of(name, None) == Objective(name, "min")


@pytest.mark.parametrize(
    "name",
    [
        "accuracy", "val_accuracy", "acc1", "f1", "val_macro_f1", "f1_score", "auc_roc", "episode_reward_mean",
        "score", "test_score", "bleu", "rougeL", "recall@10",
        "r2_score",
    ],
)  # fmt: skip
def test_an_accuracy_is_maximized(name: str) -> None:
    assert usual_mode(name) == "max"


@pytest.mark.parametrize(
    "name",
    [
        "distance", "time", "noise", "neg_mean_squared_error", "neg_log_likelihood", "loss_scale", "accuracy_drop",
        "reward_std", "error_reduction", "seconds_per_step", "loss_accuracy", "accuracy_error", "dice_loss",
        "anomaly_score", "lossless_ratio", "lossless_accuracy", "inaccuracy", "missing_recall", "failures_per_s",
        "1-f1", "-loss", "val/1-f1", "val_-loss", "!loss", "1/ppl", "(1 - acc)", "loss^-1",
        "best_loss_epoch", "min_error_step", "acc_max_epoch", "accuracy_seconds", "reward_ms", "loss_ratio",
        "error_free", "seconds_to_accuracy", "ms_per_s", "samples_per_s", "latency_ms", "best_loss", "max_reward",
        "val_loss-train_loss", "train_loss/val_loss", "\u2212loss", "100 \u2212 accuracy", "\u221aloss",
    ],
)  # fmt: skip
def test_a_direction_is_inferred_only_where_the_whole_name_says_it(name: str) -> None:
    with pytest.raises(
        SweepError, match=f"mode must be given for the metric '{re.escape(name)}', .*; give mode='max' or mode='min'"
    ):
        replace(QUADRATIC, metric=name, mode=None)
    assert replace(QUADRATIC, metric=name, mode="min").objective == Objective(name, "min")


@pytest.mark.parametrize(
    ("name", "meant"), [("val_los", "val_loss"), ("acuracy", "accuracy"), ("validaton_eror", "validation_error")]
)
def test_a_metric_that_may_be_misspelt_is_asked_about_before_its_mode(name: str, meant: str) -> None:
    with pytest.raises(SweepError, match=rf"for the metric '{name}' \(did you mean '{meant}'\?\), whose name"):
        replace(QUADRATIC, metric=name, mode=None)


@pytest.mark.parametrize("name", sorted({*AUTO_RESULT_KEYS, DONE, SHOULD_CHECKPOINT, TRIAL_ID, EXPERIMENT_TAG}))
def test_a_name_that_tune_sets_is_no_metric(name: str) -> None:
    with pytest.raises(ValueError, match=f"but got '{name}'; report the number under another name"):
        Objective(name, "min")


@pytest.mark.parametrize("name", [names.OURS, names.STEP_SECONDS, names.DEVICES])
def test_a_name_that_the_sweep_sets_is_no_metric(name: str) -> None:
    with pytest.raises(ValueError, match=f"the sweep does not set itself, but got '{name}'; report the number under"):
        Objective(name, "min")


@pytest.mark.parametrize(
    ("name", "problem"), [("config/x", "Ray Tune does not set"), ("loss\nbest 0.1", "the name of")]
)
def test_a_hyperparameter_or_more_than_a_line_is_no_metric(name: str, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        Objective(name, "min")
