"""CITATION.cff: the version that it names is the one of the package, released when CHANGELOG.md says."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import yaml

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).parents[2]


def test_citation_agrees_with_the_package() -> None:
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    package = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert {"cff-version", "message", "authors"} <= cited.keys()
    named = {key: cited[key] for key in ("title", "version", "license")}
    assert named == {"title": package["name"], "version": package["version"], "license": package["license"]}
    releases = re.findall(r"^## (\S+) \(([\d-]+)\)$", (ROOT / "CHANGELOG.md").read_text(), flags=re.MULTILINE)
    assert dict(releases)[cited["version"]] == cited["date-released"]
