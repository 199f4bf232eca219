"""What trials wait for before their first report on new workers, in words."""

from __future__ import annotations

from collections import Counter

from gaudi_tune.base.awaited import read_awaited
from gaudi_tune.define.sweep_plan import Plan
from gaudi_tune.sweep.record.sweep_state import SweepState


def awaited_in_words(plan: Plan, state: SweepState) -> list[str]:
    """Return what the running trials wait for that have yet to report, a few words for each kind."""
    if not state.trials:
        return ["waiting for the first trial to begin"]
    compilation = "" if plan.graphs is None else ", compilation"
    words = {
        "": "for Ray to start their processes",
        "devices": "for their devices",
        "workers": "for their workers (imports, devices)",
        "report": f"for the first report (imports, data{compilation}, training)",
    }
    kinds = Counter[str]()
    for trial in state.running:
        if state.device_time.is_yet_to_report(trial.number):
            kinds[read_awaited(plan.folder, trial.name)] += 1
    if any(trial.step for trial in state.trials.values()):  # trials on warm workers have no note
        del kinds[""]
    return [f"{kinds[kind]} waiting {text}" for kind, text in words.items() if kinds[kind]]
