"""A search algorithm of Ray Tune's that proposes the trials of a sweep, in place of the sweep's own samplers."""

from __future__ import annotations

import base64
import math
from collections.abc import Mapping
from functools import partial
from itertools import islice
from typing import Any

from optuna.distributions import BaseDistribution, CategoricalDistribution, IntDistribution
from ray import tune
from ray.tune.result import TRAINING_ITERATION
from ray.tune.search import BasicVariantGenerator, Searcher
from ray.tune.search.sample import Function
from ray.tune.utils.util import flatten_dict

from gaudi_tune.base.errors import SweepError, first_line
from gaudi_tune.define.ranges import WithPrior, plain, suggest_in
from gaudi_tune.define.search_space import SearchSpace, SpaceFunction
from gaudi_tune.define.space_checks import read_entries
from gaudi_tune.define.sweep_plan import Plan
from gaudi_tune.on_ray.given.guarded import Guarded
from gaudi_tune.on_ray.tune_searcher import Source
from gaudi_tune.private.ray_objects import count_variants, keeps_state, restore, saved, set_goal, variants


class RaySearch(Source):
    """Asks a searcher of Ray's for configurations, and tells it of the trials that it proposed.

    It gets what Ray Tune gives it, but a trial that diverged counts as one that failed, and one that
    ends while it waits has its last result.
    """

    def __init__(self, searcher: Searcher, plan: Plan) -> None:
        """Give the searcher metric, mode and space where it has none."""
        self._searcher, self._objectives = searcher, plan.objectives
        leader = plan.objectives[0]
        set_goal(searcher, leader.name, leader.mode, tune_space(plan.experiment.search_space))
        self._last_results: dict[str, Mapping[str, Any]] = {}
        """The last result of each of its trials that has not ended, by Tune's id."""
        self._guarded = Guarded(type(searcher).__name__)

    def suggest(self, trial_id: str) -> dict[str, Any] | str | None:
        """Return the next configuration; None while there is none; ``Searcher.FINISHED`` if there is no more."""
        suggestion = self._searcher.suggest(trial_id)
        if suggestion is None or suggestion == Searcher.FINISHED:
            return suggestion
        self._last_results[trial_id] = {}
        return {name: plain(value) for name, value in flatten_dict(suggestion).items()}

    def on_trial_result(self, trial_id: str, result: Mapping[str, Any]) -> None:
        """Tell the searcher of a result after which the trial does not end."""
        if trial_id in self._last_results:
            self._last_results[trial_id] = result
            self._tell("on_trial_result", trial_id, dict(result))

    def on_trial_complete(self, trial_id: str, result: Mapping[str, Any] | None, *, error: bool) -> None:
        """Tell the searcher of the end of a trial."""
        last_result = self._last_results.pop(trial_id, None)
        if last_result is None:
            return
        last_result = result or last_result
        has_values = all(math.isfinite(objective.value_in(last_result)) for objective in self._objectives)
        if error or not has_values:
            self._tell("on_trial_complete", trial_id, result=None, error=True)
        else:
            self._tell("on_trial_complete", trial_id, result=dict(last_result), error=False)

    def _tell(self, method: str, *arguments: Any, **named: Any) -> None:
        self._guarded.call(method, getattr(self._searcher, method), *arguments, **named)

    def save(self) -> dict[str, Any]:
        """Return what a resumed sweep must know, as JSON can hold it."""
        if not keeps_state(self._searcher):
            return {}
        metrics = (TRAINING_ITERATION, *(objective.name for objective in self._objectives))
        last_results = {
            trial_id: {name: result[name] for name in metrics if name in result}
            for trial_id, result in self._last_results.items()
        }
        return {"last_results": last_results, "saved": base64.b64encode(saved(self._searcher)).decode()}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take what :meth:`save` returned."""
        if not state:
            return
        restore(self._searcher, base64.b64decode(state["saved"]))
        self._last_results = dict(state["last_results"])


class RayVariants(Source):
    """Proposes what Ray's BasicVariantGenerator would: grids, random samples, and what functions make of these.

    With the same seed, or the generator's own, the same proposals come again, so that a resumed sweep skips those that
    it has made.
    """

    def __init__(self, generator: BasicVariantGenerator, space: Mapping[str, Any], samples: int, seed: int) -> None:
        self._variants = partial(variants, generator, tune_entries(space), samples, seed)
        self.restore({"made": 0})

    def suggest(self, trial_id: str) -> dict[str, Any] | str:
        """Return the next configuration, or ``Searcher.FINISHED`` if there is no more."""
        self._count += 1
        configuration = next(self._rest, None)
        if configuration is None:
            return str(Searcher.FINISHED)
        return {name: plain(value) for name, value in configuration.items()}

    def save(self) -> dict[str, Any]:
        """Return what a resumed sweep must know, as JSON can hold it."""
        return {"made": self._count}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take what :meth:`save` returned."""
        self._count = state["made"]
        self._rest = islice(self._variants(), self._count, None)


def count_proposals(generator: BasicVariantGenerator, space: Mapping[str, Any], samples: int) -> int:
    """Return how many trials there are if a grid is repeated so often."""
    return count_variants(generator, tune_entries(space), samples)


def tune_entries(space: Mapping[str, Any]) -> dict[str, Any]:
    """Return the entries of a space with ranges of Ray Tune in place of those of Optuna."""
    entries = {name: entry.range if isinstance(entry, WithPrior) else entry for name, entry in space.items()}
    return {name: tune_range(e) if isinstance(e, BaseDistribution) else e for name, e in entries.items()}


def tune_space(space: SearchSpace) -> dict[str, Any]:
    """Return a space as a searcher of Ray's takes it; empty if what the space asks for depends on earlier answers."""
    if space.branches or any(len(ranges) > 1 for ranges in space.ranges.values()):
        return {}
    return {name: tune_range(ranges[0]) for name, ranges in space.ranges.items()}


def tune_range(range_: Any) -> Any:
    """Return Ray Tune's range for one of Optuna's."""
    if isinstance(range_, CategoricalDistribution):
        return tune.choice(list(range_.choices))
    is_integer = isinstance(range_, IntDistribution)
    if range_.log:
        return tune.lograndint(range_.low, range_.high + 1) if is_integer else tune.loguniform(range_.low, range_.high)
    if is_integer:
        step = range_.step
        return tune.randint(range_.low, range_.high + 1) if step == 1 else tune.qrandint(range_.low, range_.high, step)
    return tune.quniform(range_.low, range_.high, range_.step) if range_.step else tune.uniform(range_.low, range_.high)


def space_of_variants(space: Mapping[str, Any]) -> SpaceFunction | Mapping[str, Any]:
    """Return a space whose grids are choices, and whose functions, ``tune.sample_from``, are called with the rest."""
    functions = {name: entry for name, entry in space.items() if isinstance(entry, Function)}
    rest = {
        name: CategoricalDistribution(list(entry["grid_search"])) if is_grid(entry) else entry
        for name, entry in space.items()
        if name not in functions
    }
    if not functions:
        return rest
    entries = read_entries(rest)

    def ask(trial: Any) -> Mapping[str, Any]:
        values = {name: suggest_in(trial, name, range_) for name, range_ in entries.ranges.items()}
        config = {**values, **entries.constants}
        try:
            variant = next(variants(BasicVariantGenerator(), {**config, **functions}, 1, seed=0))
        except ValueError as error:
            raise SweepError(
                f"tune.sample_from failed ({first_line(error.__cause__ or error)}): spec.config has "
                f"{', '.join(config)} here, also where these are in a space in the space; read them as spec.config.NAME"
            ) from error
        return {name: value for name, value in variant.items() if name not in values}

    return ask


def is_grid(entry: Any) -> bool:
    """Whether an entry of a space is a grid of Ray Tune's."""
    return isinstance(entry, Mapping) and set(entry) == {"grid_search"}


def needs_variants(space: Mapping[str, Any]) -> bool:
    """Whether only Ray's BasicVariantGenerator can propose from a space."""
    return any(is_grid(entry) or isinstance(entry, Function) for entry in space.values())


def source_of(plan: Plan) -> Source:
    """Return what proposes the trials of a plan in place of a sampler, if something does."""
    search_alg = plan.objects.search_alg
    if isinstance(search_alg, BasicVariantGenerator):
        fixed = plan.experiment.search_space.fixed
        space = {name: entry for name, entry in plan.objects.space.items() if name not in fixed}
        return RayVariants(search_alg, space, plan.num_samples, plan.options.seed)
    return Source() if search_alg is None else RaySearch(search_alg, plan)
