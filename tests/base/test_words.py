from __future__ import annotations

import pytest

from gaudi_tune.base.words import format_params, format_score, format_value, harmless, last_line


@pytest.mark.parametrize(
    ("error", "line"),
    [
        ("Traceback ...\n  File x\nKeyError: 'lr'\n", "KeyError: 'lr'"),
        (
            "RuntimeError: Error(s) in Linear:\n\tsize mismatch\n\tsize again",
            "RuntimeError: Error(s) in Linear: size again",
        ),
        ("OSError: no model\n\n    hint: try\n    again", "OSError: no model again"),
        ("  indented", "indented"),
        ("", ""),
    ],
)
def test_the_last_line_of_an_error_says_what_it_is(error: str, line: str) -> None:
    assert last_line(error) == line


def test_a_long_value_of_a_hyperparameter_is_shortened() -> None:
    text = format_params({"layers": "conv " * 1000, "lr": 0.1})
    assert text.startswith("layers=conv conv ") and text.endswith(" lr=0.1")
    assert len(text) < 300


def test_the_choice_none_is_said() -> None:
    assert format_params({"activation": None, "lr": 0.123456}) == "activation=None lr=0.1235"


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (0.1 + 0.2, "0.3000"), (0.0, "0.0000"), (0.001234567, "0.001235"), (99999.5, "99999.5000"),
        (123456.75, "123456.8"), (1e308, "1e+308"), (-1e308, "-1e+308"), (float("inf"), "inf"), (float("nan"), "nan"),
        (True, "1.0000"), (5e-324, "4.941e-324"),
    ],
)  # fmt: skip
def test_a_score_is_shown_in_a_few_characters(value: float, shown: str) -> None:
    assert format_score(value) == shown


def test_a_value_is_shown_in_a_few_characters() -> None:
    assert format_value(0.1 + 0.2) == "0.3"
    assert format_value(2**63) == "9223372036854775808"
    assert len(last_line("ValueError: " + 10**6 * "y")) < 1_100


def test_a_text_commands_no_terminal_and_has_every_encoding() -> None:
    assert harmless("a\tb\n\x1b[2J \x9b \ud800 é") == "a\tb\n\\x1b[2J \\x9b \\ud800 é"
