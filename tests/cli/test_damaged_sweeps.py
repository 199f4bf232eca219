"""Folders of sweeps that are damaged: their readers run nothing, write nothing, and say what is wrong in a line."""

from __future__ import annotations

import hashlib
import json
import os
import pickle
import shutil
import sys
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import pytest

from gaudi_tune import SweepOptions
from gaudi_tune.base.files import DELIVERED_FILE, LOCK_FILE, OUTBOX_FILE, STATE_LOG, SUMMARY_FILE, SWEEP_FILE
from gaudi_tune.cli.commands import main
from gaudi_tune.cli.run import run
from gaudi_tune.show.summary import reopen_summary
from gaudi_tune.sweep.record.events import Ending
from gaudi_tune.sweep.record.state_log import StateLog, pack, read_log
from tests.helpers.kept_sweeps import kept
from tests.helpers.quadratic import QUADRATIC

Damage = Callable[[Path], object]
NAME = "damaged"
COMMANDS = "\x1b]0;title\x07\x1b[2J\u202e\u061c\nforged\t\ud800"
"""What a terminal would obey, what turns a text around, what looks like another line, and what cannot be printed."""
MARKER = "GAUDI_TUNE_TEST_MARKER"
"""The variable with the path that hostile code makes."""


def mark() -> None:
    """What hostile code does."""
    os.mkdir(os.environ[MARKER])


class Hostile:
    """Runs when it is unpickled."""

    def __reduce__(self) -> tuple[Any, ...]:
        return mark, ()


PICKLE = pickle.dumps(Hostile())


def change(file: str, **values: object) -> Damage:
    """Return what changes entries of a JSON file."""

    def damage(folder: Path) -> None:
        content = json.loads((folder / file).read_text())
        (folder / file).write_text(json.dumps({**content, **values}))

    return damage


def change_options(**values: object) -> Damage:
    """Return what changes options in the sweep's file."""

    def damage(folder: Path) -> None:
        options = json.loads((folder / SWEEP_FILE).read_text())["options"]
        change(SWEEP_FILE, options={**options, **values})(folder)

    return damage


def replace_by(file: str, content: bytes) -> Damage:
    def damage(folder: Path) -> None:
        (folder / file).write_bytes(content)

    return damage


def in_trials(alter: Callable[[dict[str, Any]], object], part: str = "study") -> Damage:
    """Return what alters the trials of a part of the log."""

    def damage(folder: Path) -> None:
        parts = read_log(folder)
        for trial in parts[part]["trials"].values():
            alter(trial)
        StateLog(folder).append(pack(parts))

    return damage


def leave_pickles(folder: Path) -> None:
    """Put a pickle wherever one could be."""
    as_text = {"_type": "CLOUDPICKLE_FALLBACK", "value": PICKLE.hex()}
    in_trials(lambda trial: trial["user_attrs"].update(failure=as_text))(folder)
    names = ("searcher-state-9999.pkl", "search_gen_state-9999.json", "callback-states-9999.pkl", "tuner.pkl")
    for name in (*names, "experiment_state-9999.json", "trainer.pkl", LOCK_FILE, OUTBOX_FILE, DELIVERED_FILE):
        (folder / name).write_bytes(PICKLE)
    checkpoint = folder / "trial-001" / "checkpoint_000000"
    checkpoint.mkdir(parents=True)
    for name in ("model.pt", "data.pkl", ".metadata.json", "epoch.txt"):
        (checkpoint / name).write_bytes(PICKLE)
    (folder / "trial-001" / "params.pkl").write_bytes(PICKLE)


def name_modules(folder: Path) -> None:
    """Name a module whose import leaves a mark wherever something may be looked up by a name."""
    (folder.parent.parent / "hostile_on_import.py").write_text(
        "from tests.cli import test_damaged_sweeps as t\nt.mark()\n"
    )
    name = "hostile_on_import"
    change_options(search=f"{name}.mark()", scheduler=f"{name}.mark", device=name, recipe=name, config=f"{name}.py")(
        folder
    )
    script = str(folder.parent.parent / f"{name}.py")
    change(SWEEP_FILE, script=script, space={name: [f"{name}.mark"]}, experiment="quadratic")(folder)
    kind = json.dumps({"name": f"{name}.mark", "attributes": {}})
    in_trials(lambda trial: trial.update(ranges={"x": kind}))(folder)
    record = {"version": 1, "kind": f"{name}.mark", "run": "", "time_ms": 1}
    (folder / OUTBOX_FILE).write_text(json.dumps(record) + "\n")


def write_commands(folder: Path) -> None:
    """Put what commands a terminal into every text."""
    change(SWEEP_FILE, script=f"{COMMANDS}.py", others=[COMMANDS], learned=[{COMMANDS: COMMANDS}])(folder)
    change_options(search=COMMANDS, scheduler=COMMANDS, device=COMMANDS, recipe=COMMANDS)(folder)
    ended = {"why": COMMANDS, "status": 0, "option": COMMANDS}
    change(SUMMARY_FILE, failed=COMMANDS, ended_early=ended, mlflow=COMMANDS, missing=[COMMANDS])(folder)
    change(SUMMARY_FILE, best={"config": {COMMANDS: COMMANDS}, "value": COMMANDS, "trial": 1, "load": COMMANDS})(folder)
    in_trials(lambda trial: trial["user_attrs"].update(failure=COMMANDS))(folder)
    failure = {"kind": "loop error", "text": COMMANDS, "fingerprint": COMMANDS}
    in_trials(lambda trial: trial.update(status="failed", failure=failure, reason=COMMANDS), "sweep")(folder)
    in_trials(lambda trial: trial.update({part: {COMMANDS: trial[part]["x"]} for part in ("params", "ranges")}))(folder)


DAMAGES: dict[str, Damage] = {
    "pickles": leave_pickles,
    "names of modules": name_modules,
    "commands for a terminal": write_commands,
    "summary of another shape": change(SUMMARY_FILE, trials={"finished": "two"}, best={"value": []}, confirmation={}),
    "summary with a text in its winner": change(SUMMARY_FILE, best={"config": {"x": "a"}, "trial": 1, "value": 0.1}),
    "summary that is a list": replace_by(SUMMARY_FILE, b"[]"),
    "file that is torn": replace_by(SWEEP_FILE, b'{"version": '),
    "log of pickles": replace_by(STATE_LOG, PICKLE),
    "log without values": in_trials(lambda trial: trial.pop("point"), "sweep"),
    "log without configurations": in_trials(lambda trial: trial.pop("best_config"), "sweep"),
    "log that is cut off": lambda folder: replace_by(STATE_LOG, (folder / STATE_LOG).read_bytes()[:-9])(folder),
    "log of zeros": replace_by(STATE_LOG, bytes(100)),
    "log that is gone": lambda folder: (folder / STATE_LOG).unlink(),
}
READERS = {
    "summary": ("ls", "show", "new", "baseline", "resume"),
    "file": ("ls", "show --json", "rerun", "learn from", "resume"),
    "log": ("ls", "show", "learn from", "baseline of a trial", "resume"),
}
"""Who reads the file that the first word of a damage names. All read what any other damage concerns."""
EXPECTED: dict[str, tuple[str, int, str]] = {
    "log without configurations": ("learn from", 2, "damaged (ValidationError: "),
    "log of zeros": ("resume", 2, "its state cannot be read in full"),
    "log that is gone": ("resume", 2, "its state cannot be read in full (there is no state.log)"),
}
"""Exit status and words of a reader where these matter."""
FOR_ALL = [name for name in DAMAGES if name.split()[0] not in READERS]
"""The damages that concern all readers."""


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A sweep that was killed after it had been resumed, so that readers need its log and its summary."""
    storage = tmp_path_factory.mktemp("original") / "results"
    os.environ.setdefault("MLFLOW_TRACKING_URI", f"sqlite:///{storage.parent}/mlflow.db")
    folder = kept(storage, NAME, 0.2, 0.3, 0.4, num_samples=5, ending=Ending("Ctrl-C", 130)).folder
    shutil.copy(folder / SUMMARY_FILE, folder.parent / SUMMARY_FILE)
    reopen_summary(folder)
    return folder


def contents(folder: Path) -> dict[str, str]:
    """What a folder contains: the digests of files, and the kinds of all else."""
    found = {}
    for path in sorted(folder.rglob("*")):
        is_file = path.is_file() and not path.is_symlink()
        found[str(path)] = hashlib.sha256(path.read_bytes()).hexdigest() if is_file else oct(path.lstat().st_mode)
    return found


def read_by(readers: Collection[str], storage: Path, script: Path) -> dict[str, int]:
    """Let readers read the damaged sweep, and return their exit statuses."""
    shared, statuses = ("--storage", str(storage)), {}
    commands = {
        "ls": ("ls", str(storage)),
        "ls --json": ("ls", str(storage), "--json"),
        "show": ("show", NAME, *shared),
        "show --json": ("show", NAME, "--json", *shared),
        "rerun": ("rerun", NAME, "--script", str(script), "--dry-run", *shared),
        "rerun without script": ("rerun", NAME, "--dry-run", *shared),
    }
    plans: dict[str, dict[str, Any]] = {
        "new": {"device": "cpu"},
        "learn from": {"device": "cpu", "learn_from": (NAME,)},
        "baseline": {"device": "cpu", "baseline": NAME},
        "baseline of a trial": {"device": "cpu", "baseline": f"{NAME}:2"},
        "resume": {"resume": NAME},
    }
    for reader in readers or [*commands, *plans]:
        if reader in commands:
            statuses[reader] = main(commands[reader])
        else:
            options = SweepOptions(storage=storage, dry_run=True, **plans[reader])
            statuses[reader] = run(QUADRATIC, options, ["my.py"])
    return statuses


@pytest.mark.parametrize(
    ("name", "ended"),
    [*((name, name.startswith("summary")) for name in DAMAGES), *((name, True) for name in FOR_ALL)],
)
def test_readers_of_a_damaged_sweep_run_nothing_and_write_nothing(
    name: str,
    ended: bool,
    original: Path,
    storage: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(MARKER, str(tmp_path / "marker"))
    monkeypatch.syspath_prepend(tmp_path)
    script = tmp_path / "my.py"
    script.write_text("from gaudi_tune import main\nfrom tests.helpers.quadratic import QUADRATIC\nmain(QUADRATIC)\n")
    for folder in (NAME, "sound"):
        shutil.copytree(original, storage / folder)
    change_options(name="sound")(storage / "sound")
    for folder in ("sound", *([NAME] if ended else [])):
        shutil.copy(original.parent / SUMMARY_FILE, storage / folder)
    DAMAGES[name](storage / NAME)
    before = contents(storage)
    capsys.readouterr()

    statuses = read_by(READERS.get(name.split()[0], ()), storage, script)

    printed = capsys.readouterr()
    assert {*statuses.values()} <= {0, 2}, statuses
    assert statuses.get("ls", 0) == statuses.get("new", 0) == 0, "one odd sweep costs its own row"
    if name in EXPECTED:
        reader, status, words = EXPECTED[name]
        assert statuses[reader] == status
        assert words in printed.out + printed.err
    assert "Traceback" not in printed.out + printed.err
    assert not {"\x1b", "\x07", "\u202e", "\u061c", "\ud800"} & {*(printed.out + printed.err)}
    assert not any(line.startswith("forged") for line in (printed.out + printed.err).splitlines())
    rows = [line.split() for line in printed.out.splitlines()]
    if "ls" in statuses:
        assert any(row[:1] == ["sound"] and row[3:6] == ["2", "of", "5"] for row in rows)
        assert any(row[:1] == [NAME] for row in rows)
    assert not (tmp_path / "marker").exists()
    assert "hostile_on_import" not in sys.modules
    assert contents(storage) == before
