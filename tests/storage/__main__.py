"""A sweep whose machine is lost continues on another one from an object store: ``python -m tests.storage``.

The store is moto's S3 server on this machine, behind a proxy. It fails and stalls for a while and comes back; then
everything of the sweep is killed with SIGKILL and its folder is deleted. Another "machine" (another cache folder)
resumes it from the store; with ``--auto``, both run the same command line, with ``--resume auto``. Prints what was
lost. Takes about 3 minutes.

``--split``: in place of this, the machine stands still until another one has resumed its sweep, and then goes on.
``--cost`` measures instead what a slow store costs the training: the same sweep without a store, and with one that
takes 100 ms for each piece. A store that refuses everything, or is gone for a while: test_mirror.py.
"""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

from gaudi_tune.base.files import OUTBOX_FILE, STATE_LOG
from gaudi_tune.storage.mirror import NOT_COPIED
from gaudi_tune.storage.remote import Remote, address_below
from gaudi_tune.sweep.record.state_log import read_log
from gaudi_tune.sweep.record.sweep_file import read_summary
from tests.helpers.object_store import ObjectStore, object_store
from tests.tools.faults.sweep import Sweep

TRIALS = 6
ENDS_WITHIN_S = 400
DOWN_S = 5.0
MOST_LOST_S = 10.0


def make_sweep(folder: Path, store: ObjectStore | None, name: str) -> Sweep:
    variables = {"HABANA_STAND_IN_BUSY_S": "0", "GAUDI_TUNE_CACHE": str(folder / name)}
    sweep = Sweep(
        folder / f"of-{name}", "sweep", f"sqlite:///{folder}/{name}.db", TRIALS, seed=1,
        variables=variables | (store.variables if store is not None else {}),
    )  # fmt: skip
    if store is not None:
        sweep.storage = Path(store.address)
    return sweep


def reports_in_store(folder: Path, store: ObjectStore) -> dict[int, int]:
    """The reports of each trial that the store's log has."""
    remote = Remote(address_below(store.address, "sweep"))
    (folder / STATE_LOG).write_bytes(remote.read(STATE_LOG))
    trials = read_log(folder, as_data=True)["sweep"]["trials"]
    return {int(number): int(trial["reports"]) for number, trial in trials.items()}


def reports_in_folder(folder: Path) -> dict[int, int]:
    """The reports of each trial that its machine had noted at once, to tell MLflow."""
    (outbox,) = folder.glob(f"cache-1/storage/*/sweep/{OUTBOX_FILE}")
    steps: defaultdict[int, set[int]] = defaultdict(set)
    for line in outbox.read_text().splitlines():
        record = json.loads(line)
        if record["kind"] == "Update" and record["run"] and record["metrics"]:
            steps[int(record["run"])].add(record["step"])
    return {number: len(of_trial) for number, of_trial in sorted(steps.items())}


def lose_a_machine(folder: Path, store: ObjectStore) -> int:
    """Lose a machine, and return the number of problems."""
    sweep = make_sweep(folder, store, "cache-1")
    auto = ("--resume", "auto") if "--auto" in sys.argv else ()
    sweep.start(*auto)
    try:
        assert sweep.wait_for_all(0.0), sweep.printed
        for fault in ("fails", "stalls"):
            setattr(store.proxy, fault, True)
            time.sleep(DOWN_S)
            setattr(store.proxy, fault, False)
            time.sleep(DOWN_S)
        assert sweep.running, sweep.printed
    finally:
        sweep.end()
    sweep.ended_with(60)
    written, kept = reports_in_folder(folder), reports_in_store(folder, store)
    print(f"reports on the lost machine: {written}; in the store: {kept}", flush=True)
    lost = max((written[number] - kept.get(number, 0) for number in written), default=0)
    shutil.rmtree(folder / "cache-1")
    sweep._variables = make_sweep(folder, store, "cache-2")._variables
    begun, told = time.monotonic(), len(sweep.printed)
    if auto:
        sweep.start(*auto)
    else:
        sweep.resume()
    status = sweep.ended_with(ENDS_WITHIN_S)
    print(sweep.printed[told:])
    print(f"lost: at most {lost} reports of a trial (one is 1 s or more); resumed in {time.monotonic() - begun:.0f} s")
    return count_problems(folder, store, "cache-2", status) + (lost > MOST_LOST_S)


def split(folder: Path, store: ObjectStore) -> int:
    """Let two machines believe that they have a sweep, and return the number of problems."""
    first, second = (make_sweep(folder, store, name) for name in ("cache-1", "cache-2"))
    second.tracking_uri = first.tracking_uri
    second.orders = first.orders  # where a resumed sweep's trials still say that they live
    first.start()
    try:
        assert first.wait_for_all(0.0), first.printed
        first.suspend()
        second.resume()
        assert second.wait_for_all(0.0), second.printed
        first.wake()
        first_status, status = first.ended_with(ENDS_WITHIN_S), second.ended_with(ENDS_WITHIN_S)
    finally:
        first.end()
        second.end()
    print(first.printed, second.printed, sep="\n")
    said = "which has taken the sweep" in first.printed
    print(f"the first ended with status {first_status}, and {'said why' if said else 'did not say why'}")
    return count_problems(folder, store, "cache-2", status) + (not said or first_status == 0)


def count_problems(folder: Path, store: ObjectStore, machine: str, status: int | None) -> int:
    """Compare what a sweep that has ended left on its machine with what the store has."""
    (ended,) = folder.glob(f"{machine}/storage/*/sweep")
    summary = read_summary(ended)
    files = {str(file.relative_to(ended)): file for file in ended.rglob("*") if file.is_file()}
    local = {name: file.read_bytes() for name, file in files.items() if not name.startswith(NOT_COPIED)}
    there = store.objects("results/sweep/")
    lacks = local.keys() - there.keys()
    others = {name for name in local.keys() & there.keys() if store.read(f"results/sweep/{name}") != local[name]}
    counts = summary.get("counts")
    problems = [
        *([f"status {status}"] if status else []),
        *([f"the sweep did not end well: {counts}"] if counts != {"finished": TRIALS} else []),
        *([f"the store lacks {lacks}"] if lacks else []),
        *([f"the store has other content of {others}"] if others else []),
    ]
    print(f"problems: {problems or 'none'}")
    return len(problems)


def measure_cost(folder: Path, store: ObjectStore) -> int:
    """Print how long the trials train without a store and with a slow one."""
    store.proxy.delay_s = 0.1
    seconds = {}
    for name, place in (("without", None), ("with", store)):
        sweep = make_sweep(folder, place, name)
        sweep.start()
        status = sweep.ended_with(ENDS_WITHIN_S)
        place_of = sweep.folder if place is None else next(folder.glob("with/storage/*/sweep"))
        summary = read_summary(place_of)
        if status or not summary:
            print(sweep.printed)
            return 1
        seconds[name] = summary["seconds_each"]["epoch"], summary["wall_s"]
    each, wall = ([seconds[name][place] for name in ("without", "with")] for place in (0, 1))
    print(f"seconds of an epoch: {each[0]:.4f} without, {each[1]:.4f} with: {100 * (each[1] / each[0] - 1):+.2f} %")
    print(f"seconds in all: {wall[0]:.1f} without, {wall[1]:.1f} with")
    return 0


if __name__ == "__main__":
    runs = {"--cost": measure_cost, "--split": split}
    run: Any = next((run for flag, run in runs.items() if flag in sys.argv), lose_a_machine)
    with tempfile.TemporaryDirectory() as temporary, object_store() as running_store:
        sys.exit(run(Path(temporary), running_store))
