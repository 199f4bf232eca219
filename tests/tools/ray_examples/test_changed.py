"""What counts as an import, or as building the sweep."""

from __future__ import annotations

import pytest

from tests.tools.ray_examples.changed import OtherTextError, changed, count_lines
from tests.tools.ray_examples.examples import IN_EVERY

TEXT = """from ray import tune

def train(config):
    tune.report({"loss": config["lr"]})

tuner = tune.Tuner(
    train,
    param_space={"lr": 0.1},
)
tuner.fit()
"""


@pytest.mark.parametrize(
    ("changes", "lines"),
    [
        ((), (2, 0)),
        ((("    train,\n", "    train,\n    epochs=3,\n"),), (3, 0)),
        ((('    param_space={"lr": 0.1},\n', ""),), (3, 0)),
        ((('config["lr"]', '2 * config["lr"]'),), (3, 1)),
        ((("tuner.fit()", "print(tuner.fit())"),), (3, 1)),
    ],
)
def test_lines_that_neither_import_nor_build_are_counted_apart(
    changes: tuple[tuple[str, str], ...], lines: tuple[int, int]
) -> None:
    assert count_lines(TEXT, changed(TEXT, (*IN_EVERY, *changes))) == lines


def test_another_text_is_told() -> None:
    with pytest.raises(OtherTextError, match=r"the text has no 'tune.Tuner\('"):
        changed(TEXT.replace("Tuner", "Tuning"), IN_EVERY)
