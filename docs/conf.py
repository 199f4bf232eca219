"""The site of the documentation, for Sphinx: ``make docs`` builds it from the pages where they lie."""

# Why Sphinx with MyST: both are released regularly, and MyST reads the Markdown that GitHub shows. MkDocs 1 and its
# theme Material are no longer maintained; their successor, Zensical, reads Python-Markdown.

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.addnodes import pending_xref
from sphinx.application import Sphinx

project = "gaudi-tune"
html_title = project
extensions = ["myst_parser"]
root_doc = "README"
include_patterns = ["*.md", "docs/**.md", "deploy/*.md", "mlflow/*.md", "tests/tools/benchmarks/*/*.md"]
myst_heading_anchors = 6  # GitHub gives every heading an anchor
highlight_language = "none"  # of a block that names no language, as on GitHub
html_theme = "furo"  # loads no script, style or font from elsewhere
html_copy_source = html_show_copyright = html_show_sourcelink = html_show_sphinx = html_use_index = False


def prepare(app: Sphinx, page: str, source: list[str]) -> None:
    """Say to MyST what a page says to GitHub with an anchor in HTML, and give each README the contents below it."""
    source[0] = re.sub(r'^<a id="([\w-]+)"></a>', r"\n(\1)=\n", source[0], flags=re.MULTILINE)
    if page.endswith("README"):
        for caption, shown in contents(page, source[0], app.env.found_docs).items():
            options = ":hidden:\n" + (f":caption: {caption}\n" if caption else "")
            source[0] += f"\n\n```{{toctree}}\n{options}\n" + "\n".join(f"/{below}" for below in shown) + "\n```\n"


def contents(page: str, text: str, pages: set[str]) -> dict[str, list[str]]:
    """Return the pages that the sidebar shows below a README, by their caption: a new page needs no line anywhere.

    Below the first page, those of the table in its section "Documentation" come first, in their order and by the first
    column, and then all that no other README has beside it.
    """
    if page != root_doc:
        return {"": sorted(other for other in pages if Path(other).parent == Path(page).parent and other != page)}
    shown: dict[str, list[str]] = {}
    caption = ""
    for row in text.partition("\n## Documentation\n")[2].splitlines():
        caption = row[1:].partition("|")[0].strip() or caption
        linked = [link for link in re.findall(r"\]\(([\w/-]+)\.md\)", row) if link != root_doc]
        shown.setdefault(caption, []).extend(linked)
    folders = {Path(other).parent for other in pages if other.endswith("/README")}
    others = {other for other in pages if other.endswith("/README") or Path(other).parent not in folders}
    shown["More"] = sorted(others.difference([root_doc], *shown.values()))
    return {caption: below for caption, below in shown.items() if below}


def leave_folders(app: Sphinx, document: nodes.document) -> None:
    """Show a link to a folder of the repository as its text: the site has no page for it."""
    folder = Path(app.env.doc2path(app.env.docname)).parent
    for link in [*document.findall(pending_xref)]:
        if (folder / link["reftarget"]).is_dir():
            link.replace_self(link.children)


def add_index(app: Sphinx, error: Exception | None) -> None:
    """Have the address of the site itself open its first page."""
    if error is None:
        first = f'<!doctype html><meta http-equiv="refresh" content="0; url={root_doc}.html"><title>{project}</title>\n'
        Path(app.outdir, "index.html").write_text(first)


def setup(app: Sphinx) -> dict[str, Any]:
    """Connect the above."""
    app.connect("source-read", prepare)
    app.connect("doctree-read", leave_folders)
    app.connect("build-finished", add_index)
    return {"parallel_read_safe": True}
