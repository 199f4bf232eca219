from __future__ import annotations

import pytest

from experiments import main
from experiments.sweep.command_line import joined
from experiments.sweep.options import SweepOptions
from tests.experiments.sweep.quadratic import QUADRATIC


def exit_status(*arguments: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main(QUADRATIC, "A test.", arguments)
    return int(ended.value.code or 0)


def test_every_option_has_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_status("--help") == 0
    text = capsys.readouterr().out
    for field in SweepOptions.__dataclass_fields__:
        option = "--set" if field == "settings" else f"--{field.replace('_', '-')}"
        assert option in text
    assert "A test." in text


@pytest.mark.parametrize("arguments", [["--nope"], ["--device", "tpu"], ["--epochs", "many"], ["--scheduler", "x"]])
def test_an_unknown_option_or_value_is_an_error(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_status(*arguments) == 2
    assert arguments[0].strip("-") in capsys.readouterr().err


def test_a_repeated_set_keeps_all_its_values() -> None:
    given = ["--set", "a=1", "--name", "x", "--set=b=2", "--set", "c=3", "d=4", "--dry-run"]
    assert joined(given) == ["--name", "x", "--dry-run", "--set", "a=1", "b=2", "c=3", "d=4"]
    assert joined(["--name", "x"]) == ["--name", "x"]
