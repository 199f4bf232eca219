from __future__ import annotations

import pytest

from gaudi_tune.base.words import format_params, last_line


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


def test_the_choice_none_is_said() -> None:
    assert format_params({"activation": None, "lr": 0.123456}) == "activation=None lr=0.1235"
