"""A script as a train loop, in this process."""

from __future__ import annotations

import argparse
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from gaudi_tune import tune, tune_script
from gaudi_tune.cli.experiment_script import load_experiment
from gaudi_tune.training.script_loop import config_of_trial, run_script
from tests.helpers.sessions import reports_of

SCRIPT = """
import argparse
import sys
from dataclasses import dataclass

from gaudi_tune import report, tune

from gaudi_tune import tune_script

@dataclass
class Point:
    x: "float"

parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float, default=0.1)
parser.add_argument("--momentum", type=float, default=0.9)
trial = tune_script({"lr": tune.uniform(0, 1)}, metric="loss")
options = parser.parse_args([], argparse.Namespace(**trial))
if __name__ == "__main__":
    assert sys.modules["__main__"].Point is Point
    report({"loss": Point(options.lr).x, "momentum": options.momentum, "file": __file__, "argv": len(sys.argv)})
"""


def test_every_trial_runs_it_from_its_first_line(tmp_path: Path) -> None:
    before = sys.modules["__main__"], list(sys.argv)

    def loop(config: dict[str, Any]) -> None:
        run_script(config, path="/somewhere/train.py", source=SCRIPT)

    for lr in (0.5, 0.25):
        (report,) = reports_of(loop, {"lr": lr, "epochs": 1, "seed": 0})
        assert report == {"loss": lr, "momentum": 0.9, "file": "/somewhere/train.py", "argv": 1}
    assert (sys.modules["__main__"], sys.argv) == before
    assert config_of_trial() is None


def test_a_script_that_exits_with_status_0_has_ended_well() -> None:
    for end in ("sys.exit()", "sys.exit(0)"):
        run_script({}, path="/somewhere/train.py", source=f"import sys; {end}; 1 / 0")
    with pytest.raises(SystemExit, match="2"):
        run_script({}, path="/somewhere/train.py", source="import sys; sys.exit(2)")


@pytest.mark.parametrize(("confirms", "names"), [(0, "lr"), (2, "confirms lr")])
def test_a_script_gets_confirms_only_where_it_is_not_0(confirms: int, names: str) -> None:
    script = 'from gaudi_tune import report, tune_script\nreport({"names": " ".join(sorted(tune_script({}, "loss")))})'
    loop = partial(run_script, path="/somewhere/train.py", source=script)
    assert reports_of(loop, {"lr": 0.5, "confirms": confirms}) == [{"names": names}]


def test_an_error_of_a_script_leaves_nothing_behind() -> None:
    before = sys.modules["__main__"]
    with pytest.raises(ZeroDivisionError) as raised:
        run_script({}, path="/somewhere/train.py", source="1 / 0")
    assert str(raised.traceback[-1].path) == "/somewhere/train.py"
    assert sys.modules["__main__"] is before
    assert config_of_trial() is None


def test_a_script_has_its_own_encoding_package_and_annotations(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "some_package").mkdir()
    (tmp_path / "some_package" / "__init__.py").touch()
    (tmp_path / "some_package" / "model.py").write_text("def value(x):\n    return 2 * x\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    script = """# -*- coding: latin-1 -*-
from gaudi_tune import report
from .model import value

class Typed:
    x: float

report({"loss": value(1), "name": "\u00e9", "typed": Typed.__annotations__["x"] is float})
"""

    def loop(config: dict[str, Any]) -> None:
        run_script(config, "/somewhere/train.py", script.encode("latin-1"), package="some_package")

    assert reports_of(loop, {"epochs": 1, "seed": 0}) == [{"loss": 2, "name": "\u00e9", "typed": True}]


@pytest.fixture
def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser()
    parser.add_argument("--lr", type=float, default=0.1)
    parser.add_argument("--epochs", type=int, default=5)
    return parser


@pytest.mark.parametrize(
    ("arguments", "read"),
    [
        ([], {"lr": 0.1, "epochs": 5}),
        (["--lr", "0.3"], {"lr": 0.3, "epochs": 5}),
        (["--epochs=2"], {"lr": 0.1, "epochs": 2}),
    ],
)
def test_the_own_command_line_of_a_script_trains(
    parser: argparse.ArgumentParser, arguments: list[str], read: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["train.py", *arguments])
    assert tune_script({"lr": tune.uniform(0, 1)}, metric="loss", parser=parser) == read


def test_an_option_of_the_sweep_alone_tunes(
    parser: argparse.ArgumentParser, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["train.py", "--num-smples", "8"])
    with pytest.raises(SystemExit):
        tune_script({"lr": tune.uniform(0, 1)}, metric="loss", parser=parser)
    assert "did you mean --num-samples?" in capsys.readouterr().err


def test_a_parser_that_no_trial_could_use_is_refused(
    parser: argparse.ArgumentParser, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["train.py", "--dry-run", "data"])
    with pytest.raises(SystemExit, match="2"):
        tune_script({"learning_rate": tune.uniform(0, 1)}, metric="loss", parser=parser)
    assert "error: the script's parser has no --learning_rate, as the space has" in capsys.readouterr().err
    with pytest.raises(SystemExit, match="2"):
        tune_script({"lr": tune.choice(["0.1", "high"])}, metric="loss", parser=parser)
    assert "argument --lr: invalid float value: 'high'" in capsys.readouterr().err
    parser.add_argument("data")
    with pytest.raises(SystemExit, match="2"):
        tune_script({"lr": tune.uniform(0, 1)}, metric="loss", parser=parser)
    assert "error: each trial has the parser's defaults, or values of the space: give" in capsys.readouterr().err


def test_a_trial_has_the_parser_s_defaults_and_a_sweep_its_epochs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("argv", "path"):
        monkeypatch.setattr(sys, name, [*getattr(sys, name)])
    monkeypatch.setitem(sys.modules, "__main__", sys.modules["__main__"])
    script = tmp_path / "train.py"
    script.write_text(
        SCRIPT.replace('metric="loss")', 'metric="loss", parser=parser)').replace(
            "parser.parse_args([], argparse.Namespace(**trial))", "argparse.Namespace(**trial)"
        ).replace("trial =", 'parser.add_argument("--epochs", type=int, default="5")\ntrial =')
    )  # fmt: skip
    experiment, _ = load_experiment(str(script))
    assert experiment.budget.epochs == 5
    # A text is read as on a command line; and the parser of a module that stays has its own default again.
    for trial, momentum in (({"momentum": "0.5"}, 0.5), ({}, 0.9)):
        (report,) = reports_of(experiment.train_loop, {"lr": 0.5, "epochs": 1, "seed": 0, **trial})
        assert (report["loss"], report["momentum"]) == (0.5, momentum)


def test_a_notebook_is_no_script(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(sys.modules["__main__"], "__file__")
    with pytest.raises(ValueError, match="in a notebook, give build_tuner a train loop"):
        tune_script({}, metric="loss")
