"""The plan of a sweep in words."""

from __future__ import annotations

from collections.abc import Iterator

from gaudi_tune.base.words import counted, duration
from gaudi_tune.define.objective import Objective, usual_mode
from gaudi_tune.define.sweep_plan import WITH_RUNGS, Plan
from gaudi_tune.show.confirmation import describe_test_data
from gaudi_tune.training.training_config import TrainingConfig


def plan_lines(plan: Plan) -> list[str]:
    """Return the plan in words, a line each."""
    options, kept = plan.options, "as it began" if plan.resumed else None
    mode_matters = plan.devices.type.compiles or (plan.mode is not None and plan.mode.name != "eager")
    rows = [
        ("sweep", _search(plan)),
        ("", _weak_trials(plan)),
        ("", f"then trains {_confirmation(plan)}" if plan.seeds else ""),
        ("", f"on {describe_test_data(plan.test_data_seen_by)}" if plan.seeds and plan.test_data_seen_by else ""),
        ("metric", _metric(plan.experiment.objective, asked=bool(options.objectives))),
        *(("", _metric(other, asked=True)) for other in plan.objectives[1:]),
        ("limits", _limits(plan)),
        ("recipe", f"{plan.recipe}: {kept or plan.recipe_reason}" if plan.experiment.has_recipes else ""),
        (
            "device",
            f"{plan.devices.type.kind}: {kept or plan.devices.reason}; {counted(plan.groups, 'trial')} at a time, "
            f"{counted(options.workers_per_trial, 'worker')} each",
        ),
        *(("", said) for said in _left_to_the_loop(plan)),
        ("mode", f"{plan.mode.name}: {plan.mode.reason}" if plan.mode and mode_matters else ""),
        *(("", fact) for fact in plan.facts),
        ("graphs", _graphs(plan)),
        ("grow", _growth(plan)),
        ("start", f"from {_baseline(plan)}" if options.baseline else ""),
        *(("known", said) for said in plan.learning_notes),
        ("config", f"{options.config}{_ranges(plan)}" if options.config is not None else ""),
        (
            "ray",
            f"joins the cluster at {plan.cluster}; devices that other sweeps there use are not free for this one"
            if plan.cluster
            else "",
        ),
        ("time", _hours(plan)),
        ("files", str(plan.folder)),
        ("mlflow", plan.tracking_uri),
    ]
    return [f"{word:<6}  {said}" for word, said in rows if said]


def _search(plan: Plan) -> str:
    options, name = plan.options, f"{plan.name}{' continues' if plan.resumed else ''}"
    if options.baseline_only:
        alone = "the baseline" if plan.repeats_published else _baseline(plan)
        return f"{name}: {alone} alone, at most {plan.budget}"
    first = "the baseline first" if plan.experiment.baseline else "no baseline, the sampler proposes the first"
    rungs = ", ".join(map(str, plan.budget.rungs())) if options.scheduler in WITH_RUNGS else ""
    return (
        f"{name}: {counted(plan.num_samples, 'trial')}, {first}, at most {plan.budget} each, {options.search} search, "
        f"{options.scheduler} scheduler{rungs and f', rungs at {plan.budget.unit} {rungs}'}"
    )


def _weak_trials(plan: Plan) -> str:
    """Say what becomes of weak trials where that is not obvious."""
    scheduler = plan.options.scheduler
    if plan.options.baseline_only:
        return ""
    if scheduler == "asha-promote" and plan.budget.rungs():
        if plan.mode is None:  # a train loop that nobody has seen save
            return "weak trials pause at a rung and keep a checkpoint, or stop there if the train loop saves none"
        return "weak trials pause at a rung and keep a checkpoint (--scheduler asha stops them instead)"
    if scheduler == "pbt":
        every = counted(plan.budget.exchange_every(), plan.budget.unit)
        return (
            f"the {plan.groups} that train at the same time are the population; every {every} the weak ones take over "
            f"the weights of the strong"
        )
    return ""


def _confirmation(plan: Plan) -> str:
    best = ["the best trial" if plan.confirm == 1 else f"the best {plan.confirm} trials"] if plan.confirm else []
    if plan.has_front and plan.confirm > 1:
        best = [f"{plan.confirm} trials, of the front first and far from each other,"]
    baseline = ["the baseline"] if plan.experiment.baseline else []
    each = " each" if plan.confirm + bool(baseline) > 1 else ""
    options = "--confirm, --seeds" if plan.confirm else "--seeds"
    return f"{' and '.join(best + baseline)} again in full, with {plan.seeds} seeds{each} ({options})"


def _metric(objective: Objective, *, asked: bool) -> str:
    """Say what is better, and doubt that a loss is to be maximized unless an option ``asked`` for it."""
    metric = objective.name
    doubt = objective.maximizes and not asked and usual_mode(metric) == "min"
    return f"{metric}: {objective.rule}" + ('; if less is, give the Experiment mode="min"' if doubt else "")


def _limits(plan: Plan) -> str:
    options, ends = plan.options, []
    if options.time_budget is not None:
        ends.append(f"after {duration(60 * options.time_budget)}")
    if options.target is not None:
        ends.append(f"when {plan.experiment.metric} reaches {options.target:g}")
    if options.patience is not None:
        ends.append(f"after {counted(options.patience, 'trial')} without a better value")
    return f"the sweep ends {', or '.join(ends)}" if ends else ""


def _left_to_the_loop(plan: Plan) -> Iterator[str]:
    """Say what a train loop must do itself that the shared one does; nothing shows whether it does."""
    if issubclass(plan.experiment.config_class, TrainingConfig):
        return
    if plan.options.workers_per_trial > 1:
        yield (
            "the train loop must divide the data among the workers (prepare_data_loader and prepare_model of "
            "ray.train.torch); else each trains the whole"
        )
    if plan.budget.steps:
        yield "the train loop gets steps and eval_every in its configuration, and no epochs"


def _graphs(plan: Plan) -> str:
    if plan.graphs is None:
        return ""
    trials = counted(plan.num_samples, "trial")
    if plan.graphs.continuous:
        names = " and ".join(plan.graphs.continuous)
        return (
            f"each of {trials} compiles a new one, because {names} can have any value: give it few values (step=), or "
            f"one (--set)"
        )
    of = ", ".join(f"{number} of {name}" for name, number in plan.graphs.values.items())
    return f"this space has {counted(plan.graphs.signatures, 'graph signature')} for {trials}{of and f' ({of})'}"


def _growth(plan: Plan) -> str:
    if isinstance(plan.growth, str):
        return f"off: {plan.growth} (--grow on allows it, and changes a trial's numbers)"
    if not plan.grows:
        return ""
    how = ", which changes their numbers" if plan.options.grow == "on" else " (--grow off: never)"
    return f"running trials take up to {plan.growth} {plan.devices.type.kind} each when no trial waits for them{how}"


def _baseline(plan: Plan) -> str:
    if plan.repeats_published and plan.experiment.published:
        return f"the baseline {plan.options.baseline}: {plan.experiment.published.source}"
    sweep, number = plan.options.baseline_trial
    return f"the winner of {sweep}" if number is None else f"trial {number} of {sweep}"


def _ranges(plan: Plan) -> str:
    words = plan.experiment.search_space.in_words()
    ranges = [f"{name} in {words[name]}" for name in plan.options.space or {} if name in words]
    return f": {', '.join(ranges)}" if ranges else ""


def _hours(plan: Plan) -> str:
    """Say how long the sweep takes if no trial is stopped early; nothing where that is unknown or no time at all."""
    if plan.seconds_each is None or plan.resumed:  # what is left of a sweep is not in the plan
        return ""
    seconds, sweep = plan.seconds_each
    rounds = -(-plan.num_samples // plan.groups) + -(-plan.confirmations // plan.groups)
    whole, unit = rounds * plan.budget.total * seconds, plan.budget.unit
    if whole < 1:
        return ""
    how = f"if no trial is stopped early and each {unit} takes {seconds:.3g} s, the average in {sweep}"
    return f"about {duration(whole)} once the workers are up, {how}"
