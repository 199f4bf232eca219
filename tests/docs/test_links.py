"""The links between the Markdown files of the repository: each leads to a file, and to a heading in it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from markdown_it import MarkdownIt
from markdown_it.token import Token

ROOT = Path(__file__).parents[2]
FOLDERS = ("docs", "deploy", "mlflow", "tests/tools/benchmarks")
PAGES = sorted([*ROOT.glob("*.md"), *(page for folder in FOLDERS for page in (ROOT / folder).rglob("*.md"))])
ANCHOR = re.compile(r"""<a\s[^>]*(?:id|name)=["']([^"']+)["']""")


def tokens_of(page: Path) -> Iterator[Token]:
    """Yield the tokens of a page, those inside of lines included."""
    for token in MarkdownIt("commonmark").enable("table").parse(page.read_text()):
        yield token
        yield from token.children or ()


def anchors_of(page: Path) -> set[str]:
    """Return the anchors of a page: GitHub's name of each heading, and those written in HTML."""
    anchors, headings = set[str](), Counter[str]()
    tokens = [*tokens_of(page)]
    for token, following in pairwise(tokens):
        if token.type in ("html_inline", "html_block"):
            anchors.update(ANCHOR.findall(token.content))
        if token.type == "heading_open":
            text = "".join(part.content for part in following.children or () if part.type in ("text", "code_inline"))
            name = re.sub(r"[^\w\- ]", "", text.strip().lower()).replace(" ", "-")
            anchors.add(f"{name}-{headings[name]}" if name in headings else name)
            headings[name] += 1
    return anchors


def broken_links(page: Path, root: Path = ROOT) -> list[str]:
    """Return the links and pictures of a page that lead to no file below ``root``, or to no anchor in it."""
    targets = [str(token.attrs[key]) for token in tokens_of(page) for key in ("href", "src") if key in token.attrs]
    broken = []
    for target in targets:
        address = urlsplit(target)
        if address.scheme or address.netloc:
            continue
        file = (page.parent / unquote(address.path)).resolve() if address.path else page.resolve()
        there = file.exists() and file.is_relative_to(root.resolve())
        if not there or (address.fragment and unquote(address.fragment) not in anchors_of(file)):
            broken.append(target)
    return broken


def test_the_pages_are_found() -> None:
    names = {str(page.relative_to(ROOT)) for page in PAGES}
    assert {"README.md", "CHANGELOG.md", "docs/options.md", "docs/examples/README.md", "mlflow/README.md"} <= names


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_somewhere(page: Path) -> None:
    assert broken_links(page) == []


OTHER = """
# Ranges, and `lr`: what is_known
## Twice
## Twice
# [A link](other.md#twice)
text <a id="by-time"></a>**By time.**
```
# No heading
```
"""


@pytest.mark.parametrize(
    "link",
    [
        "other.md", "other.md#ranges-and-lr-what-is_known", "other.md#twice", "other.md#twice-1", "other.md#a-link",
        "other.md#by-time", "#here", "a%20b.txt", "folder", "folder/", "../page/other.md", "https://example.org/#gone",
        "mailto:someone@example.org",
    ],
)  # fmt: skip
def test_a_link_that_leads_somewhere_passes(link: str, tmp_path: Path) -> None:
    assert broken_links(page_with(f"# Here\n[text]({link})", tmp_path), tmp_path) == []


@pytest.mark.parametrize(
    "link",
    [
        "gone.md", "gone.md#twice", "other.md#gone", "other.md#twice-2", "other.md#Twice", "other.md#no-heading",
        "#gone", "gone.png", "gone/", "/other.md", "../../outside.md", "a%20b.txt#gone",
    ],
)  # fmt: skip
@pytest.mark.parametrize(
    "text", ["see [text]({})", "![picture]({})", "| a |\n|---|\n| [text]({}) |", "[text][name]\n\n[name]: {}"],
    ids=["link", "picture", "table", "reference"],
)  # fmt: skip
def test_a_broken_link_is_found(text: str, link: str, tmp_path: Path) -> None:
    assert broken_links(page_with(f"# Here\n{text.format(link)}", tmp_path), tmp_path / "page") == [link]


def test_code_has_no_links(tmp_path: Path) -> None:
    assert broken_links(page_with("`[text](gone.md)`\n\n```\n[text](gone.md)\n```\n", tmp_path), tmp_path) == []


def page_with(text: str, folder: Path) -> Path:
    """Return a page with this text, beside another page, a file and a folder, and below a file outside."""
    (folder / "page" / "folder").mkdir(parents=True)
    for name, content in (("page/other.md", OTHER), ("page/a b.txt", ""), ("outside.md", ""), ("page/page.md", text)):
        (folder / name).write_text(content)
    return folder / "page" / "page.md"
