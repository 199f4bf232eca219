"""Compares all places of real sweeps, whose drivers are killed, with what their loops wrote down.

    python -m tests.tools.agree.real [--kinds WORD ...] [--kills 1] [--seed 0]

The nine kinds with one kill each take 7 minutes on 2 cores.
"""

from __future__ import annotations

import argparse
import json
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gaudi_tune.define.options import PROJECT_ROOT
from gaudi_tune.sweep.record.state_log import logged_trials
from tests.helpers.mlflow_store import empty_store
from tests.helpers.object_store import object_store
from tests.tools.agree.places import disagreements
from tests.tools.agree.real_loop import CONFIRMED, CURVE, LOG
from tests.tools.agree.truth import Truth
from tests.tools.versions.sweep import Driver

ENDS_WITHIN_S = 400


@dataclass(frozen=True)
class RealKind:
    """A kind of sweep, by its command line."""

    curve: Mapping[str, Any] = field(default_factory=dict)
    options: Mapping[str, str] = field(default_factory=dict)
    """Options in place of the usual ones, or besides them."""
    in_store: bool = False
    """Whether it is in an object store."""
    twice: bool = False
    """Whether another sweep of the same seed, which nobody kills, must report the same numbers, bit for bit."""


KINDS = {
    "loop": RealKind(),
    "loop, saves third, fifo": RealKind({"saves": "third"}, {"scheduler": "fifo"}),
    "loop, several trials a device": RealKind(options={"trials-per-device": "2"}),
    "loop, confirmation": RealKind(options={"confirm": "1", "seeds": "2"}),
    "loop, in a store": RealKind(in_store=True),
    "loader, twice": RealKind(options={"scheduler": "fifo", "search": "random"}, twice=True),
    "class": RealKind(),
    "class, save fails": RealKind({"mishap": "save fails"}, {"checkpoint-minutes": "0", "same-errors": "0"}),
    "class, load fails": RealKind({"mishap": "load fails"}, {"same-errors": "0"}),
}


class RealSweep:
    """A sweep of a kind, in processes of its own; ``variables`` are in their environment."""

    def __init__(self, folder: Path, name: str, kind: RealKind, storage: str = "", **variables: str) -> None:
        self._folder, self._kind, self._log = folder, kind, folder / "log"
        self._log.mkdir(parents=True)
        (folder / CONFIRMED).mkdir()
        self.uri = empty_store(folder / "mlflow.db")
        own = {CURVE: json.dumps(kind.curve), LOG: str(self._log), "AGREE_KIND": name}
        self._variables = {**variables, **own, "GAUDI_TUNE_CACHE": str(folder / "cache")}
        self._shared = ("--storage", storage or f"{folder}/results", "--tracking-uri", self.uri)
        self._drivers: list[Driver] = []

    @property
    def printed(self) -> str:
        """What all of its drivers have printed."""
        return "".join(driver.printed for driver in self._drivers)

    def start(self, *options: str) -> None:
        command = [sys.executable, "-m", "tests.tools.agree.real_loop", *options, *self._shared]
        self._drivers.append(Driver(command, PROJECT_ROOT, **self._variables))

    def begin(self, seed: int = 0) -> None:
        """Start it for the first time."""
        usual = {"name": "sweep", "num-samples": "8", "seed": str(seed), "device": "cpu", "confirm": "0"}
        self.start(*(word for name, value in {**usual, **self._kind.options}.items() for word in (f"--{name}", value)))

    def ended_with(self) -> int:
        """Wait for the end of the driver, and return its exit status."""
        driver = self._drivers[-1]
        try:
            status = driver.process.wait(ENDS_WITHIN_S)
        finally:
            driver.end()
        driver.reader.join(10)
        return status

    def folder_of_sweep(self) -> Path:
        (folder,) = [*self._folder.glob("results/sweep"), *self._folder.glob("cache/storage/*/sweep")]
        return folder

    def reports(self) -> dict[float, dict[int, dict[str, Any]]]:
        """What the loops wrote down: for each ``x`` its reports by number."""
        lines = {float(file.name): file.read_text().splitlines() for file in self._log.iterdir()}
        return {x: {entry["count"]: entry for entry in map(json.loads, of_x)} for x, of_x in lines.items()}

    def repeated_otherwise(self) -> list[str]:
        """What was trained twice, with other numbers the second time."""
        counts = Counter(
            (file.name, json.loads(line)["count"])
            for file in self._log.iterdir()
            for line in {*file.read_text().splitlines()}
        )
        return [
            f"report {count} of {x} was made again with other numbers"
            for (x, count), times in counts.items()
            if times > 1
        ]

    def run(self, chance: random.Random, signals: Sequence[signal.Signals] = ()) -> list[str]:
        """Run it, send these signals to its driver at random moments, and return the disagreements."""
        wrong = []
        self.begin(chance.randrange(1000))
        for number in signals:
            driver = self._drivers[-1].process
            known = sum(map(len, self.reports().values())) + chance.randrange(3, 15)
            while driver.poll() is None and sum(map(len, self.reports().values())) < known:
                time.sleep(0.05)
            time.sleep(chance.uniform(0, 2))
            if driver.poll() is not None:
                break
            if number == signal.SIGKILL:
                self._drivers[-1].kill()
            else:
                driver.send_signal(number)
                if (status := self.ended_with()) != 128 + number:
                    wrong.append(f"status {status} after {number.name}")
            self.start("--resume", "sweep")
        if status := self.ended_with():
            return [*wrong, f"status {status}"]
        killed, folder = bool(signals), self.folder_of_sweep()
        return [
            *wrong,
            *self.repeated_otherwise(),
            *disagreements(folder, self.uri, self.printed, self._truth(), killed=killed, complete=True),
        ]

    def _truth(self) -> Truth:
        searched = {
            trial.began_with["x"]: trial for trial in logged_trials(self.folder_of_sweep()) if not trial.confirms
        }
        return Truth(
            reports={
                trial.number: {
                    count: report for count, report in self.reports().get(x, {}).items() if count <= trial.reports
                }
                for x, trial in searched.items()
            },
            configs={trial.number: {"x": x} for x, trial in searched.items()},
            confirmed=self._confirmed(),
        )

    def _confirmed(self) -> dict[int, list[float]]:
        """Return the test losses at the best reports of the trials that confirm."""
        scores: dict[int, list[float]] = {}
        for file in (self._folder / CONFIRMED).iterdir():
            best = min(map(json.loads, file.read_text().splitlines()), key=lambda entry: entry["loss"])
            scores.setdefault(int(file.name.partition(" ")[0]), []).append(best["test_loss"])
        return scores


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kinds", nargs="+", default=[""], help="parts of names of kinds")
    parser.add_argument("--kills", type=int, nargs="+", default=[1])
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    sweeps = wrong = 0
    for name, kind in ((name, kind) for name, kind in KINDS.items() if any(word in name for word in asked.kinds)):
        for kills in asked.kills:
            began = time.monotonic()
            with (
                tempfile.TemporaryDirectory(prefix="agree-") as folder,
                object_store() if kind.in_store else nullcontext() as store,
            ):
                place = {"storage": store.address, **store.variables} if store is not None else {}
                sweep = RealSweep(Path(folder), name, kind, **place)
                found = sweep.run(random.Random(f"{name} {kills} {asked.seed}"), [signal.SIGKILL] * kills)
                if kind.twice:
                    twin = RealSweep(Path(folder, "twin"), name, kind)
                    found += twin.run(random.Random(f"{name} {kills} {asked.seed}"))
                    found += ["a sweep without a kill has other numbers"] if twin.reports() != sweep.reports() else []
                if found:
                    print(sweep.printed)
            sweeps, wrong = sweeps + 1, wrong + bool(found)
            print(
                f"{name}, {kills} kills, {time.monotonic() - began:.0f} s: {'; '.join(found) or 'agrees'}", flush=True
            )
    print(f"{sweeps} sweeps, {wrong} with a wrong number")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
