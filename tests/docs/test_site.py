"""The site that ``make docs`` builds: in one piece, without an address elsewhere, and with a search."""

from __future__ import annotations

import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import WebDriverWait

from tests.helpers.mlflow_pages import chromium

pytestmark = [
    pytest.mark.processes,
    pytest.mark.skipif(sys.version_info < (3, 11), reason="the site needs Python 3.11"),
]

ROOT = Path(__file__).parents[2]
LOADS = {"script": ["src"], "link": ["href"], "img": ["src", "srcset"], "iframe": ["src"], "object": ["data"]}
"""The attributes of HTML whose addresses a browser loads by itself."""
ELSEWHERE = re.compile(r"\s*(\w+:)?//")


def build(source: Path, site: Path) -> subprocess.CompletedProcess[str]:
    """Build a site with the command of ``make docs``, from other folders."""
    shown = subprocess.run(["make", "--dry-run", "docs"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    (command,) = re.findall(r"-m sphinx .*", shown)
    command = command.replace("-c docs", f"-c {ROOT / 'docs'}").replace(" . build/site", f" {source} {site}")
    command = command.replace("build/doctrees", f"{site}-doctrees")
    return subprocess.run([sys.executable, *command.split()], capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    site = tmp_path_factory.mktemp("docs") / "site"
    built = build(ROOT, site)
    assert built.returncode == 0, built.stderr
    return site


class Loaded(HTMLParser):
    """The addresses that a page loads."""

    def __init__(self, page: Path) -> None:
        super().__init__()
        self.addresses: list[str] = []
        self.feed(page.read_text())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.addresses += [value for name, value in attrs if value and name in LOADS.get(tag, ())]


def test_every_page_is_there_and_loads_nothing_from_elsewhere(site: Path) -> None:
    pages = {str(page.relative_to(site)): Loaded(page).addresses for page in site.rglob("*.html")}
    assert {"index.html", "README.html", "docs/options.html", "mlflow/README.html", "search.html"} <= set(pages)
    assert sum(map(len, pages.values())) > len(pages)
    assert {page: found for page, all_ in pages.items() if (found := [*filter(ELSEWHERE.match, all_)])} == {}
    styles = {style.name: style.read_text() for style in site.rglob("*.css")}
    loaded = {name: re.findall(r"""(?:url\(|@import)\s*["']?([^"')\s]+)""", text) for name, text in styles.items()}
    assert [address for addresses in loaded.values() for address in addresses if ELSEWHERE.match(address)] == []


def test_a_search_finds_the_page_of_an_option(site: Path, tmp_path: Path) -> None:
    with chromium(tmp_path) as browser:
        browser.get(f"{site.as_uri()}/search.html?q=hang-minutes")
        # Results appear one after another.
        WebDriverWait(browser, 60).until(
            lambda browser: browser.find_elements(By.CSS_SELECTOR, '.search li a[href*="docs/options.html"]')
        )


@pytest.mark.parametrize(
    ("link", "message"),
    [
        ("docs/other.md#there", None),
        ("docs/other.md#gone", "local id not found in doc 'docs/other': 'gone'"),
        ("#gone", "cross-reference target not found: 'gone'"),
        ("docs/gone.md", "cross-reference target not found: 'docs/gone.md'"),
    ],
)
def test_a_broken_link_fails_the_build(link: str, message: str | None, tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "other.md").write_text("# Other\n\n## There\n")
    (tmp_path / "README.md").write_text(f"# First\n\n[a link]({link})\n")
    built = build(tmp_path, tmp_path / "site")
    assert (built.returncode == 0) == (message is None), built.stderr
    assert (message or "") in built.stderr
