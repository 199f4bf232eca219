"""What MLflow is told of a sweep: a parent run per sweep, a child run per trial."""

from __future__ import annotations

import json
import logging
import math
import re
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from numbers import Real
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ray.tune.experiment import Trial
from ray.tune.result import AUTO_RESULT_KEYS, DONE, SHOULD_CHECKPOINT

from experiments.sweep.endings import TellsEndings
from experiments.sweep.errors import SweepError
from experiments.sweep.experiment import Experiment
from experiments.sweep.outcome import Outcome, number_of
from experiments.sweep.provenance import provenance
from experiments.sweep.search.searcher import distributions_of
from experiments.sweep.tracking import best_model
from experiments.sweep.tracking.delivery import EXPERIMENT, GIVE_UP_AFTER_S, Sender
from experiments.sweep.tracking.outbox import Outbox, trial_key
from experiments.sweep.tracking.store import STORE, STORE_URI, store_of
from trainables.runtime import names

if TYPE_CHECKING:
    from experiments.sweep.ledger import Ledger
    from experiments.sweep.plan import Plan

logger = logging.getLogger(__name__)

NOT_METRICS = {
    *AUTO_RESULT_KEYS, DONE, SHOULD_CHECKPOINT, names.FIRST_STEP_AT, names.STEP_SECONDS, names.EPOCH,
    names.STEP, "trial_id",
}  # fmt: skip
"""Entries of a Tune result that say nothing about the model, or are the time axis itself."""


CHANGED = "hyperparameters/"
"""Before the name of a hyperparameter that changes while a trial trains, and so is a metric of it."""


class MlflowTracking(TellsEndings):
    """Writes what happens in a sweep to its outbox; nothing here waits for MLflow."""

    def __init__(self, plan: Plan, ledger: Ledger) -> None:
        super().__init__(plan.experiment.metric, plan.budget)
        self._plan, self._ledger = plan, ledger
        self._told: dict[str, int] = {}  # how far each trial's metrics are written down
        self._began_with: dict[str, dict[str, str]] = {}  # the parameters of each trial's run
        self._sender: Sender | None = None
        self._ids: dict[str, str] = {}
        self._ended: dict[str, Outcome] = {}
        self._best: tuple[float, int] | None = None  # value and number of the trial

    @property
    def address(self) -> str:
        """Where a person looks at the sweep."""
        uri, local = self._plan.tracking_uri, "http://127.0.0.1:5000"
        base = uri if uri.startswith("http") else local
        start = "make ui" if uri == STORE_URI else f"mlflow ui --backend-store-uri {uri}"
        note = f"  (start the page with: {start})" if base == local else ""
        return f"{base.rstrip('/')}/#/experiments/{self._ids.get(EXPERIMENT, '')}/runs/{self._ids.get('', '')}{note}"

    def setup(self, **info: Any) -> None:
        """Start the thread, which begins with what earlier sweeps left, and goes on with this one's run."""
        plan = self._plan
        outbox = Outbox(plan.folder)
        if not outbox.take():
            raise SweepError(f"{plan.folder}: another process runs this sweep; wait for it, or end it first")
        self._ids = outbox.ids
        self._remember(outbox)
        facts = {
            "recipe": plan.recipe, "device": plan.devices.type.kind, "groups": plan.groups,
            "workers_per_trial": plan.options.workers_per_trial, "num_samples": plan.num_samples,
            "search": plan.options.search, "scheduler": plan.options.scheduler, "sweep_seed": plan.options.seed,
        }  # fmt: skip
        artifacts = str(STORE / "artifacts" / plan.experiment.name) if plan.tracking_uri == STORE_URI else None
        outbox.put(
            {
                "what": "begin sweep",
                "store": store_of(plan.tracking_uri),
                "experiment": plan.experiment.name,
                "artifacts": artifacts,
                "name": plan.name,
                "tags": {"metric": plan.experiment.metric, "mode": plan.experiment.mode, "kind": "sweep"},
                "about": {"devices": plan.devices.reason, "data": "; ".join(plan.facts), **provenance()},
                "space": space_in_words(plan.experiment),
                "data": {"source": str(plan.settings.get("data", "")), "facts": plan.facts},
                "params": {named(name): str(value) for name, value in {**plan.settings, **facts}.items()},
                "outbox": outbox.mark,
                "time_ms": _now_ms(),
            }
        )
        left = [folder for folder in Outbox.left_in(plan.folder.parent) if folder != plan.folder]
        self._sender = Sender(plan.tracking_uri, outbox, left)
        self._sender.start()

    def _remember(self, outbox: Outbox) -> None:
        """Take from the outbox of a resumed sweep what was written down before, which may be more than Tune knows."""
        for record in outbox.all():
            if record["what"] == "metrics":
                self._told[record["trial"]] = record["step"]
            elif record["what"] == "begin":
                self._began_with.setdefault(record["trial"], record["params"])
            elif record["what"] == "end":
                self._ended[record["trial"]] = record["outcome"]
            elif record["what"] == "progress" and "best_trial" in record["tags"]:
                self._best = record["values"][f"best_{self._metric}"], record["tags"]["best_trial"]

    def on_trial_start(self, iteration: int, trials: list[Trial], trial: Trial, **info: Any) -> None:
        """Begin the trial's run."""
        params = {named(name): str(value) for name, value in trial.config.items()}
        self._began_with.setdefault(key_of(trial), params)
        self._send(
            "begin", trial, name=run_name(trial, self._plan.experiment.telling), params=params, trial_id=trial.trial_id
        )

    def on_trial_result(
        self, iteration: int, trials: list[Trial], trial: Trial, result: Mapping[str, Any], **info: Any
    ) -> None:
        """Write down the metrics of one report, unless a trial that was lost comes by here again."""
        step, told = self._budget.progress(result), self._told.get(key_of(trial))
        if told is not None and step <= told:
            return
        self._told[key_of(trial)] = step
        values = numbers_in({name: value for name, value in result.items() if name not in NOT_METRICS})
        self._send("metrics", trial, values={**values, **self._changed(trial)}, step=step)
        value = values.get(self._metric, math.nan)
        if self._plan.experiment.leads(value, number_of(trial), self._best):
            self._best = value, number_of(trial)
            self._send("progress", trial, values={f"best_{self._metric}": value}, tags={"best_trial": number_of(trial)})

    def _changed(self, trial: Trial) -> dict[str, float]:
        """Return the hyperparameters that pbt has changed since the trial began: parameters of a run cannot change."""
        began = self._began_with.get(key_of(trial), {})
        return numbers_in({CHANGED + k: v for k, v in trial.config.items() if began.get(named(k), str(v)) != str(v)})

    def trial_ended(self, trial: Trial, outcome: Outcome, reason: str | None) -> None:
        """Close the trial's run."""
        seconds = {f"seconds/{kind}": value for kind, value in self._ledger.by_trial[number_of(trial)].items()}
        step = self._told.get(key_of(trial), 0)
        self._send("end", trial, outcome=outcome, reason=reason, values=seconds, step=step)
        self._ended[key_of(trial)] = outcome
        kinds = Counter(self._ended.values())
        counts = {f"trials_{kind.replace(' ', '_')}": float(count) for kind, count in kinds.items()}
        self._send("progress", trial, values=counts, tags={})

    def show(self, files: Sequence[Path], *, last: bool) -> None:
        """Have files shown at the sweep's run in place of earlier ones of their names; any thread may call this."""
        assert self._sender is not None, "Tune calls setup() first"
        self._sender.outbox.put(
            {"what": "pictures", "files": [str(file) for file in files], "last": last, "time_ms": _now_ms()}
        )

    def on_experiment_end(self, trials: list[Trial], **info: Any) -> None:
        """Log the best checkpoint, the summary and the best model, close the sweep's run and wait for the thread."""
        assert self._sender is not None
        summary = json.loads(self._plan.summary_file.read_text())
        self._sender.outbox.put({"what": "end of sweep", "summary": summary, "time_ms": _now_ms()})
        if (model := best_model.record_of(self._plan, summary, _now_ms())) is not None:
            self._sender.outbox.put(model)
        self._sender.close()
        if self._sender.outbox.waiting:
            logger.error(
                "MLflow at %s took nothing for %d s: not everything was delivered. It waits in %s, and goes out with "
                "this user's next sweep that has the same --storage and --tracking-uri.",
                self._plan.tracking_uri, GIVE_UP_AFTER_S, self._plan.folder,
            )  # fmt: skip
        if not self._sender.is_alive():
            self._sender.outbox.close()  # so that the sweep can be resumed, by this process too

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_sender": None}  # a thread cannot be copied; setup() starts it

    def _send(self, what: str, trial: Trial, **more: Any) -> None:
        assert self._sender is not None, "Tune calls setup() first"
        at = {"time_ms": _now_ms(), "ended": len(self._ended)}
        self._sender.outbox.put({"what": what, "trial": key_of(trial), **at, **more})


def key_of(trial: Trial) -> str:
    """Return what tells a trial from the others of its sweep, in its outbox and in MLflow.

    Its number, and not Tune's id: a trial that began after the last snapshot of an interrupted sweep is proposed again
    with the same number and configuration and another id, and goes on with its run.
    """
    return trial_key(number_of(trial))


def numbers_in(entries: Mapping[str, Any]) -> dict[str, float]:
    """Return the entries that are numbers, under names that MLflow takes."""
    flags = {name for name, value in entries.items() if isinstance(value, bool)}
    return {named(k): float(v) for k, v in entries.items() if isinstance(v, Real) and k not in flags}


def named(name: str) -> str:
    """Return a name that MLflow takes: it refuses a whole batch for the ``@`` of ``acc@1``."""
    return re.sub(r"[^\w\-. :/]", "_", name)


def space_in_words(experiment: Experiment) -> dict[str, str]:
    """Return the range of each hyperparameter, for people."""
    if callable(experiment.space):
        return {"function": str(experiment.space)}
    return {name: str(distribution) for name, distribution in distributions_of(experiment.space).items()}


def run_name(trial: Trial, telling: tuple[str, ...]) -> str:
    """Return the name of a trial's run: its number and its most telling hyperparameters."""
    return " ".join([f"trial {number_of(trial):03d}", *told(trial.config, telling)])


def told(config: Mapping[str, Any], telling: tuple[str, ...]) -> list[str]:
    """Return ``name=value`` of the given hyperparameters, numbers in three digits."""
    return [
        f"{k}={config[k]:.3g}" if isinstance(config[k], float) else f"{k}={config[k]}" for k in telling if k in config
    ]


def _now_ms() -> int:
    return int(time.time() * 1000)
