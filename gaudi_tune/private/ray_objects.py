"""Schedulers and searchers of Ray Tune: what they were given, their goal, and their state."""

from __future__ import annotations

import copy
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from ray import tune
from ray.tune.experiment import Trial
from ray.tune.schedulers import PopulationBasedTraining, TrialScheduler
from ray.tune.search import BasicVariantGenerator, Searcher, variant_generator
from ray.tune.stopper import Stopper


def goal_of(alg: TrialScheduler | Searcher) -> tuple[Any, Any]:
    """Return the metric and the mode that the user gave a scheduler or a searcher; None for what was not given."""
    return getattr(alg, "_metric", None), getattr(alg, "_mode", None)


def set_goal(alg: TrialScheduler | Searcher, metric: str, mode: str, *space: dict[str, Any]) -> None:
    """Give a scheduler the metric and the mode, or a searcher these and its space, unless it has them."""
    own_metric, own_mode = goal_of(alg)
    alg.set_search_properties(None if own_metric else metric, None if own_mode else mode, *space)


def variants(
    generator: BasicVariantGenerator, space: dict[str, Any], samples: int, seed: int
) -> Iterator[dict[str, Any]]:
    """Yield what Ray's generator of variants proposes. Its own class makes trials of Tune besides, and counts those.

    Without a random state of the generator's own, the seed decides.
    """
    random_state = copy.deepcopy(generator._random_state)
    if getattr(random_state, "_rng", None) is None:
        random_state = np.random.default_rng(seed)
    options = {"constant_grid_search": generator._constant_grid_search, "random_state": random_state}
    points = generator._points_to_evaluate[:samples]
    for point in points:
        for _, resolved in variant_generator._get_preset_variants({"config": space}, point, **options):
            yield resolved["config"]
    for _ in range(samples - len(points)):
        for _, resolved in variant_generator.generate_variants({"config": space}, **options):
            yield resolved["config"]


def count_variants(generator: BasicVariantGenerator, space: dict[str, Any], samples: int) -> int:
    """Return how many configurations :func:`variants` yields."""
    points = copy.deepcopy(generator._points_to_evaluate)
    return int(variant_generator._count_variants({"config": space, "num_samples": samples}, points))


def points_of(search_alg: BasicVariantGenerator | Searcher) -> list[dict[str, Any]]:
    """Return the configurations that a search algorithm was given to propose first."""
    points = getattr(search_alg, "_points_to_evaluate", None)
    return list(points) if isinstance(points, list | tuple) else []  # some count those that are left


def time_attribute(scheduler: TrialScheduler) -> str:
    """Return by which entry of a report a scheduler of Ray's tells the time; "" if by none."""
    return str(getattr(scheduler, "_time_attr", ""))


def longest_trial(scheduler: TrialScheduler | Stopper) -> float | None:
    """Return the ``max_t`` of a scheduler of Ray's, or the ``max_iter`` of a Stopper; None if it has none."""
    fields = vars(scheduler)
    return next((fields[name] for name in ("_max_t_attr", "_max_t", "_max_iter") if name in fields), None)


def resources_of(trainable: Any) -> Any:
    """Return what ``tune.with_resources()`` or a class books for a trial: a mapping, a PlacementGroupFactory, or a
    function of the trial's configuration; None for nothing."""
    kind: Any = trainable if isinstance(trainable, type) else getattr(trainable, "trainable", None)  # of a ClassLoop
    if kind is None or not issubclass(kind, tune.Trainable):
        return getattr(trainable, "_resources", None)
    try:
        return kind.default_resource_request({})
    except Exception:  # it looks into the configuration
        return kind.default_resource_request


def mutated_by(scheduler: PopulationBasedTraining) -> set[str]:
    """Return the hyperparameters that a scheduler of a population changes."""
    return {*scheduler._hyperparam_mutations, *getattr(scheduler, "_hyperparam_bounds", ())}


def keeps_state(alg: TrialScheduler | Searcher) -> bool:
    """Whether the state of a scheduler or a searcher can be kept for a resume."""
    return isinstance(alg, PopulationBasedTraining) or type(alg).save not in (TrialScheduler.save, Searcher.save)


def saved(alg: TrialScheduler | Searcher) -> bytes:
    """Return what a scheduler or a searcher that keeps its state saves of itself."""
    with tempfile.TemporaryDirectory() as folder:
        alg.save(file := f"{folder}/state")
        return Path(file).read_bytes()


def restore(alg: TrialScheduler | Searcher, state: bytes) -> None:
    """Give a scheduler or a searcher what :func:`saved` returned."""
    with tempfile.TemporaryDirectory() as folder:
        Path(file := f"{folder}/state").write_bytes(state)
        alg.restore(file)


PBT_STATE = ("last_score", "last_perturbation_time", "last_train_time", "last_result")
"""Attributes of PBT's state of a trial, besides the checkpoint. PBT cannot save or restore its state by itself."""


def pbt_states(scheduler: PopulationBasedTraining) -> dict[Trial, Any]:
    """Return PBT's state of each trial: objects with the attributes of :data:`PBT_STATE`, which may be set."""
    states: dict[Trial, Any] = scheduler._trial_state
    return states
