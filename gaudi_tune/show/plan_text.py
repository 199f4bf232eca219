"""The plan of a sweep in words."""

from __future__ import annotations

import os
from collections.abc import Iterator

from gaudi_tune.base.words import counted, duration
from gaudi_tune.define.objective import Objective
from gaudi_tune.define.sweep_plan import Plan
from gaudi_tune.private.surfaces import ANY_VERSION, STOCK, SURFACES, reason_off, tested, untested
from gaudi_tune.show.confirmation import describe_test_data
from gaudi_tune.storage.remote import address_below


def plan_lines(plan: Plan) -> list[str]:
    """Return the plan in words, a line each."""
    copy_address = address_below(plan.address, plan.name)
    rows = [
        *_rows_of_search(plan),
        *_rows_of_devices(plan),
        ("grow", _growth(plan)),
        ("start", f"from {_baseline(plan)}" if plan.options.baseline else ""),
        *(("known", note) for note in plan.learning_notes),
        ("config", str(plan.options.config or "")),
        ("ray", _cluster(plan)),
        ("files", f"{copy_address}, a copy of {plan.folder}" if plan.address else str(plan.folder)),
        ("mlflow", plan.tracking_uri),
        *(("note", note) for note in _versions(plan)),
    ]
    return [f"{label:<6}  {text}" for label, text in rows if text]


def _rows_of_search(plan: Plan) -> list[tuple[str, str]]:
    """Return label and text of the lines about trials, objectives and limits."""
    sweep = f"{plan.name}{_continues(plan)}: {search_in_words(plan)}"
    rows = [("sweep", sweep), ("", plan.weak_trials)]
    if plan.seeds:
        rows.append(("", f"then trains {_confirmation(plan)}"))
        if plan.test_data_seen_by:
            rows.append(("", f"on {describe_test_data(plan.test_data_seen_by)}"))
    rows += zip(["metric", *[""] * len(plan.objectives)], map(_metric, plan.objectives), strict=False)
    rows.append(("limits", _limits(plan)))
    rows += [("" if line else "given", words) for line, words in enumerate(plan.objects.in_words())]
    return rows


def _rows_of_devices(plan: Plan) -> list[tuple[str, str]]:
    """Return label and text of the lines about the recipe, the devices and what runs on them."""
    kept_reason = "as it began" if plan.resumed else None
    rows = []
    if plan.experiment.has_recipes:
        rows.append(("recipe", f"{plan.recipe}: {kept_reason or plan.recipe_reason}"))
    groups, workers = counted(plan.groups, "trial"), counted(plan.options.workers_per_trial, "worker")
    reason = kept_reason or plan.devices.reason
    line = f"{plan.devices.type.kind}: {reason}; {groups} at a time"
    if plan.trials_per_device > 1:
        line += f" on {counted(plan.devices.count, 'device')} ({plan.trials_per_device} each)"
    rows.append(("device", f"{line}, {workers} each"))
    rows += [("", duty) for duty in _duties_of_loop(plan)]
    if plan.mode and (plan.devices.type.compiles or plan.mode.name != "eager"):
        rows.append(("mode", f"{plan.mode.name}: {plan.mode.reason}"))
    rows += [("", fact) for fact in plan.facts]
    rows.append(("graphs", _graphs(plan)))
    return rows


def search_in_words(plan: Plan) -> str:
    """Return how many trials a sweep has, how long they train, and what proposes and compares them."""
    options = plan.options
    if options.baseline_only:
        baseline = _baseline(plan) if options.baseline else "the baseline"
        return f"{baseline} alone, at most {plan.budget}"
    start = "the baseline first" if plan.experiment.baseline else "no baseline, the sampler proposes the first"
    trials = f"{counted(plan.num_samples, 'trial')}, {start}, at most {plan.budget} each"
    line = f"{trials}, {options.search} search, {options.scheduler} scheduler"
    if plan.rungs:
        line += f", rungs at {plan.budget.unit} {', '.join(map(str, plan.rungs))}"
    return line


def _continues(plan: Plan) -> str:
    if not plan.resumed:
        return ""
    copied = f", a copy of {plan.stored_folder}," if plan.stored_folder != plan.folder else ""
    return f"{copied} continues{f' {plan.origin}' if plan.origin else ''}"


def _confirmation(plan: Plan) -> str:
    trials = []
    if plan.confirm == 1:
        trials.append("the best trial")
    elif plan.confirm and plan.has_front:
        trials.append(f"{plan.confirm} trials, of the front first and far from each other,")
    elif plan.confirm:
        trials.append(f"the best {plan.confirm} trials")
    if plan.experiment.baseline:
        trials.append("the baseline")
    num_trials = plan.confirm + bool(plan.experiment.baseline)
    seeds = f"{plan.seeds} seeds each" if num_trials > 1 else f"{plan.seeds} seeds"
    options = "--confirm, --seeds" if plan.confirm else "--seeds"
    if plan.most_seeds > plan.seeds:
        seeds, options = f"{seeds}, or {plan.most_seeds} if these leave it open", f"{options}, --most-seeds"
    return f"{' and '.join(trials)} again in full, with {seeds} ({options})"


def _metric(objective: Objective) -> str:
    return f"{objective.name}: {objective.rule}{', as its name says' if objective.inferred else ''}"


def _limits(plan: Plan) -> str:
    options = plan.options
    ends = []
    if options.time_budget is not None:
        ends.append(f"after {duration(60 * options.time_budget)}")
    if options.target is not None:
        ends.append(f"when {plan.experiment.metric} reaches {options.target:g}")
    if options.patience is not None:
        ends.append(f"after {counted(options.patience, 'trial')} without a better value")
    return f"the sweep ends {', or '.join(ends)}" if ends else ""


def _duties_of_loop(plan: Plan) -> Iterator[str]:
    """Yield what a user's train loop must do itself. Nothing shows whether it does; the shared loop does it."""
    if plan.experiment.config_class.divides_work:
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
    line = f"this space has {counted(plan.graphs.signatures, 'graph signature')} for {trials}"
    if plan.graphs.values:
        line += f" ({', '.join(f'{number} of {name}' for name, number in plan.graphs.values.items())})"
    if (shapes := plan.graphs.most_shapes) > 1:
        line += f", each for up to {shapes} lengths of samples: up to {shapes * plan.graphs.signatures} graphs"
    return line


def _growth(plan: Plan) -> str:
    if isinstance(plan.growth, str):
        return f"off: {plan.growth} (--grow on allows it nevertheless)"
    if not plan.grows:
        return ""
    notes = {
        "auto": ", with other random draws (--grow exact: only where numbers stay the same; --grow off: never)",
        "exact": ", and their numbers stay the same",
        "on": ", even where that changes what they compute",
    }
    note = notes[plan.options.grow]
    return f"running trials take up to {plan.growth} {plan.devices.type.kind} each when no trial waits for them{note}"


def _baseline(plan: Plan) -> str:
    sweep, number = plan.options.baseline_trial
    return f"the winner of {sweep}" if number is None else f"trial {number} of {sweep}"


def _versions(plan: Plan) -> Iterator[str]:
    """Yield a line for each library whose version nobody has tested, and for each private surface that is off."""
    for library, version in untested().items():
        yield f"nobody has tested {library} {version} ({tested(library)} was): what is private in it was looked up"
    if os.environ.get(STOCK) == "1":
        surfaces = [name for name, surface in SURFACES.items() if not surface.fallback]
        yield f"{STOCK}=1: public APIs alone, but for {', '.join(surfaces)}"
        return
    for name in plan.disabled:
        surface = SURFACES[name]
        result = surface.fallback or f"the sweep may lose work, since {ANY_VERSION}=1"
        yield f"{name} is off: {result} ({reason_off(name)}; {tested(surface.library)} was tested)"


def _cluster(plan: Plan) -> str:
    if not plan.cluster:
        return ""
    return f"joins the cluster at {plan.cluster}; devices that other sweeps there use are not free for this one"
