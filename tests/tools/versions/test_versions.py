from __future__ import annotations

import re

from tests.tools.versions.__main__ import COMBINATIONS, ROOT


def test_the_lowest_sets_are_the_bounds_of_pyproject() -> None:
    """The set of a library is its lower bound."""
    requirements = (ROOT / "pyproject.toml").read_text()
    for versions in COMBINATIONS:
        for requirement in versions.requirements:
            name, _, version = requirement.partition("==")
            if versions.name in (name, "trainers"):
                assert re.search(
                    rf"\b{name}(\[.*\])?>={re.escape(version.removesuffix('.*').removesuffix('.0'))}", requirements
                )
