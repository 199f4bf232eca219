"""Command lines of a script and of ``gaudi-tune``, objectives, and places."""

from __future__ import annotations

from pathlib import Path
from random import Random

from gaudi_tune.define.options import TRAITS, flag
from tests.tools.fuzz.given import SMALL, Input, Misread, dry_run, nothing_wrong, read_as, run_command
from tests.tools.fuzz.values import changed_text, shown

NUMBERS: dict[str, str] = {
    "epochs": "5", "steps": "100", "eval_every": "10", "seconds": "60", "num_samples": "8", "patience": "4",
    "grace": "2", "seeds": "3", "most_seeds": "6", "reduction": "3", "confirm": "2", "seed": "7", "trial_seed": "7",
    "same_errors": "4", "retries": "2", "workers_per_trial": "1",
}  # fmt: skip
"""Options that are whole numbers, with a value of each."""
DECIMALS = {"time_budget": "1.5", "target": "0.25", "hang_minutes": "30.5", "checkpoint_minutes": "2.5"}
"""Options that are any numbers."""
TEXTS = {
    "recipe": "full", "device": "cpu", "grow": "auto", "scheduler": "asha", "search": "tpe", "name": "mine",
    "objectives": "loss:min", "settings": "lr=0.01", "data": "data.csv", "model": "model", "baseline": "earlier",
    "learn_from": "earlier", "storage": "results", "tracking_uri": "sqlite:///mlflow.db", "register": "best",
    "notify": "http://localhost/hook", "address": "localhost:1", "checkpoint_budget": "10GB", "config": "sweep.toml",
    "resume": "earlier", "add_trials": "2",
}  # fmt: skip
"""Other options."""
SWITCHES = ("baseline_only", "dry_run", "tried", "json")
EVERYTHING = {**NUMBERS, **DECIMALS, **TEXTS}


def as_arguments(name: str, text: str, random: Random) -> list[str]:
    """Return an option of the command line, written in one of the ways that work."""
    return random.choice(([flag(name), text], [flag(name), text], [f"{flag(name)}={text}"]))


def command_lines(random: Random, place: Path) -> Input:
    """Return a command line of a script: options that are nearly right, misspelt, given twice, cut short."""
    wrong, kind = "", random.randrange(8)
    misread: Misread = nothing_wrong
    if kind < 4:
        name = random.choice([*NUMBERS, *DECIMALS])
        text = changed_text(EVERYTHING[name], random)
        arguments = as_arguments(name, text, random)
        if not (text.startswith("-") and len(arguments) == 2):
            wrong, misread = read_as(name, text, whole=name in NUMBERS)
    elif kind == 4:
        name = random.choice(list(TEXTS))
        arguments = as_arguments(name, changed_text(TEXTS[name], random), random)
    elif kind == 5:
        name = random.choice([*NUMBERS, *DECIMALS, "name", "search", "data", "storage"])
        second = EVERYTHING[name] + random.choice(("", "0", "1"))
        arguments = [*as_arguments(name, EVERYTHING[name], random), *as_arguments(name, second, random)]
        arguments[-2:] = [part.replace("_", "-") for part in arguments[-2:]]
        wrong = "given twice"
    elif kind == 6:
        option = flag(random.choice([*EVERYTHING, *SWITCHES]))
        bad = random.choice(
            (option[:-1], option[:5], option[1:], option.upper(), f"{option}s", f"--no{option[1:]}", f"-{option}")
        )
        arguments = random.choice(([bad], [bad, "1"], ["1", bad]))
        wrong = "" if bad in {"--help", *map(flag, TRAITS)} else "there is no such option"
    else:
        arguments = [f"{flag(random.choice(SWITCHES))}={random.choice(('true', 'false', '0', '1', 'no', ''))}"]
        wrong = "a switch has no value"
    return Input("command line", shown(arguments), lambda: dry_run(SMALL, arguments), wrong, misread)


def gaudi_tune(random: Random, place: Path) -> Input:
    """Return a command line of ``gaudi-tune``."""
    command = random.choice(("ls", "show", "rerun", "run", "show", "rerun", "run"))
    given = [
        str(place / "results" / "earlier"), "earlier", str(place / "results"), "my.py", str(place / "my.py"),
        str(place), f"{place}/my.py:EXPERIMENT", f"{place}/my.py:nothing", f"{place}/broken.py", f"{place}/exits.py",
        f"{place}/damaged", f"{place}/wrong.py", f"{place}/syntax.py", "", "-", "~nosuch/x",
    ]  # fmt: skip
    subjects = [random.choice(given) for _ in range(random.choice((1, 1, 1, 2, 0)))]
    if random.random() < 0.4 and subjects:
        subjects[0] = changed_text(subjects[0], random)
    wrong = ""
    options = random.choice(
        (
            [], [], ["--storage", str(place / "results")], ["--storage", changed_text("results", random)], ["--json"],
            ["--trial", changed_text("1", random)], ["--seeds", changed_text("2", random)], ["--json", "--json"],
            ["--tracking-uri", changed_text("x", random)], ["--nosuch"], ["--stor", "x"],
        )
    )  # fmt: skip
    if "--nosuch" in options or "--stor" in options or options.count("--json") == 2:
        wrong = "there is no such option, or it is given twice"
    if command in ("run", "rerun"):
        options = [*options, "--dry-run", "--device", "cpu"]
    if command == "rerun" and random.random() < 0.7:
        options += ["--script", str(place / random.choice(("my.py", "my.py", "broken.py", "exits.py", "nosuch.py")))]
    arguments = [command, *subjects, *options]
    if command == "run" and any(subject.endswith(("exits.py", "broken.py", "wrong.py")) for subject in subjects[:1]):
        wrong = "its script ends or fails"
    return Input("gaudi-tune", shown(arguments), lambda: run_command(arguments), wrong)


def objectives(random: Random, place: Path) -> Input:
    """Return ``--objectives``."""
    names = (
        "loss", "val_loss", "accuracy", "distance", "f1", "done", "training_iteration", "", " ", ":", "a:b", "loss_gap",
    )  # fmt: skip
    forms = ("{}", "{}:min", "{}:max", "{}:MIN", "{}:")
    texts = [random.choice(forms).format(name) for name in random.choices(names, k=random.choice((1, 2, 3, 4)))]
    if random.random() < 0.3:
        texts[0] = changed_text(texts[0], random)
    bad = [
        text
        for text in texts
        if text.strip() in ("distance", "loss_gap", "", ":", "done") or text.endswith((":MIN", ":"))
    ]
    wrong = (
        f"{bad[0]!r} is no objective" if bad else "an objective is given twice" if len({*texts}) < len(texts) else ""
    )
    return Input("objectives", shown(texts), lambda: dry_run(SMALL, ["--objectives", *texts]), wrong)


def places(random: Random, place: Path) -> Input:
    """Return folders, files and names."""
    folder = random.choice(
        (
            "results", "my.py", "/proc/1", "/dev/null", "/root/x/y", "~nosuchuser/x", "~", "s3://bucket/x",
            "file:///tmp/x", "", ".", "results/earlier", "é", "a b", "my.py/x", "$HOME/x", "results/", "C:\\x",
        )
    )  # fmt: skip
    path = folder if folder.startswith(("/", "~", "s3", "file")) or not folder else str(place / folder)
    option, text = "storage", path
    if random.random() < 0.5:
        option = random.choice(("name", "resume", "baseline", "learn_from", "config", "data", "model", "register"))
        numbered = [f"earlier:{number}" for number in ("1", "99", "x", "-1", "0")]
        text = random.choice((path, path, changed_text("earlier", random), random.choice(numbered), "..", "/"))
    results = [] if option == "storage" else ["--storage", str(place / "results")]
    arguments = [flag(option), text, *results]
    return Input("places", shown(arguments), lambda: dry_run(SMALL, arguments), "an empty path" if text == "" else "")
