"""The site that ``make docs`` builds: in one piece, and without an address elsewhere."""

from __future__ import annotations

import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest

pytestmark = [
    pytest.mark.processes,
    pytest.mark.skipif(sys.version_info < (3, 11), reason="the site needs Python 3.11"),
]

ROOT = Path(__file__).parents[2]
LOADS = {"script": ["src"], "link": ["href"], "img": ["src", "srcset"], "iframe": ["src"], "object": ["data"]}
"""The attributes of HTML whose addresses a browser loads by itself."""
ELSEWHERE = re.compile(r"\s*(\w+:)?//")


class Loaded(HTMLParser):
    """The addresses that a page loads."""

    def __init__(self, page: Path) -> None:
        super().__init__()
        self.addresses: list[str] = []
        self.feed(page.read_text())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.addresses += [value for name, value in attrs if value and name in LOADS.get(tag, ())]


def test_every_page_is_there_and_loads_nothing_from_elsewhere(tmp_path: Path) -> None:
    """With the command of ``make docs``, for which a broken link is an error, into another folder."""
    shown = subprocess.run(["make", "--dry-run", "docs"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    (command,) = re.findall(r"-m sphinx .*", shown)
    site = tmp_path / "site"
    command = command.replace("build/site", str(site)).replace("build/doctrees", str(tmp_path / "doctrees"))
    built = subprocess.run([sys.executable, *command.split()], cwd=ROOT, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr
    pages = {str(page.relative_to(site)): Loaded(page).addresses for page in site.rglob("*.html")}
    assert {"index.html", "README.html", "docs/options.html", "mlflow/README.html", "search.html"} <= set(pages)
    assert sum(map(len, pages.values())) > len(pages)
    assert {page: found for page, all_ in pages.items() if (found := [*filter(ELSEWHERE.match, all_)])} == {}
    styles = {style.name: style.read_text() for style in site.rglob("*.css")}
    loaded = {name: re.findall(r"""(?:url\(|@import)\s*["']?([^"')\s]+)""", text) for name, text in styles.items()}
    assert [address for addresses in loaded.values() for address in addresses if ELSEWHERE.match(address)] == []
