"""What is changed in each of Ray Tune's examples, and what must come of it. None of their code is here."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Example:
    """An example, the texts that are replaced in it, and what its sweeps must have in the end."""

    file: str
    trials: int = 0
    """How many trials must end, in all its sweeps, and none of them failed."""
    reports: int = 0
    """How many reports the longest trial must have."""
    changes: tuple[tuple[str, str], ...] = ()
    """Texts and what replaces them, besides those of every example."""
    arguments: tuple[str, ...] = ("--smoke-test",)
    sweeps: int = 1
    refused: str = ""
    """The beginning of the reason, if the sweep must be refused."""
    remark: str = ""
    """What the table says besides."""


IN_EVERY = (
    ("from ray import tune\n", "from ray import tune\nfrom gaudi_tune import build_tuner\n"),
    ("tune.Tuner(", "build_tuner("),
)
DIGITS = "its images are small local ones"
ENGINE = "needs its engine installed"


def steps(number: int) -> tuple[str, str]:
    """Say how long a trial of a function that trains for so many steps may be: where Ray Tune has no budget."""
    return "        easy_objective,\n", f"        easy_objective,\n        epochs={number},\n"


def without(*lines: str) -> tuple[tuple[str, str], ...]:
    """Remove lines."""
    return tuple((f"{line}\n", "") for line in lines)


IN_ITS_TUNE_CONFIG = ("tune.TuneConfig(\n", "tune.TuneConfig(search_alg=tune.search.BasicVariantGenerator(),\n")
RANGES = (
    ('"lr": 0.0001,', '"lr": tune.uniform(0.0001, 0.02),'),
    ('"some_other_factor": 1,', '"some_other_factor": tune.choice([1, 2]),'),
)
BOHB = ("HyperBandScheduler\n", "HyperBandForBOHB as HyperBandScheduler\n")

EXAMPLES = (
    Example("async_hyperband_example.py", 20, 100, arguments=()),
    Example("bayesopt_example.py", 10, 100, (steps(100),), remark=ENGINE),
    Example("cifar10_pytorch.py", 1, 1, (IN_ITS_TUNE_CONFIG,)),
    Example("custom_checkpointing_with_callback.py", 3, 20, arguments=(), changes=without(
        "                checkpoint_at_end=True,  # Still checkpoint at the end")),
    Example("custom_func_checkpointing.py", 5, 10, arguments=()),
    Example("hyperband_example.py", 20, 1, (BOHB,)),
    Example("hyperband_function_example.py", 20, 10, (BOHB,)),
    Example("hyperopt_conditional_search_space_example.py", changes=(
        ("        easy_objective,\n", '        easy_objective, param_space={"width": tune.uniform(0, 20)},\n'),),
        refused="search_alg=HyperOptSearch", remark=ENGINE),
    Example("logging_example.py", 5, 100, arguments=(), changes=without(
        "            trial_name_creator=trial_str_creator,", "            trial_dirname_creator=trial_str_creator,")),
    Example("mlflow_example.py", 10, 5, sweeps=2, changes=(
        ("            num_samples=5,\n", '            num_samples=5, metric="mean_loss", mode="min",\n'),
        ('name="mlflow",\n        ),', 'name="mlflow-2",\n        ),'))),
    Example("mnist_pytorch.py", 20, 5, remark=DIGITS),
    Example("mnist_pytorch_trainable.py", 20, 3, remark=DIGITS, changes=without(
        "                checkpoint_at_end=True, checkpoint_frequency=3")),
    Example("nevergrad_example.py", 10, 100, (steps(100),), remark=ENGINE),
    Example("optuna_define_by_run_example.py", changes=(
        ("        easy_objective,\n", "        easy_objective, param_space=define_by_run_func,\n"),),
        refused="experiment optuna_define_by_run_example: the search space has keys that options give"),
    Example("optuna_example.py", 10, 100, (steps(100),)),
    Example("optuna_multiobjective_example.py", 10, 100, (steps(100),)),
    Example("pb2_example.py", 8, 30, RANGES[:1]),
    Example("pbt_convnet_example.py", 4, 5, remark=DIGITS),
    Example("pbt_convnet_function_example.py", 4, 5, remark=DIGITS),
    Example("pbt_example.py", 8, 10, RANGES),
    Example("pbt_function.py", 8, 10, RANGES),
    Example("pytorch_optuna.py", 20, 5, arguments=(), remark=DIGITS),
    Example("tune_basic_example.py", 10, 5, (IN_ITS_TUNE_CONFIG,)),
)  # fmt: skip
"""The examples of ``python/ray/tune/examples`` and, last but one, of ``doc/source/tune/doc_code``. Those that need a
GPU, TensorFlow, RLlib, a download or an account are left out."""
