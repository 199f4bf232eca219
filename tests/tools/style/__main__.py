"""Names that are nouns, and docstrings with a subject: what ``make lint`` counts.

    python -m tests.tools.style [--list] [FILE or FOLDER ...]

A local, an argument or a field is named for a thing. A name that is a function word ("of", "known", "asked") says
nothing by itself, and a docstring that begins with one ("Of a trial.") cannot be read without the line above it. Prints
both counts, with ``--list`` also where they stand, and exits with 1 if names pass their share or a docstring has no
subject.
"""

from __future__ import annotations

import argparse
import ast
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[3]
SOURCES = ("gaudi_tune", "experiments", "search_spaces", "trainables")
MOST_FUNCTION_WORDS = 0.01
"""Share of the bound names that may be function words."""
FUNCTION_WORDS = """
a above after again all also an and another any apart as asked at away back become been before began begun being below
beside besides both brought but by called came can chosen come could did do does done down each either else enough
ever every few first for found from full further gave get given go goes gone got had has have having held her here him
his how if in into is it its itself just kept knew know known last least left less let like likewise lost made many
may meant meanwhile might more most much must near needed neither never no none nor not now of off on once one ones
only onto or other others otherwise ought our out over own past per rather read said same say says see seen shall she
should since so some soon still such taken than that the their them then there these they this those though through
thus to together told too took tried under unless until up upon used very wanted was we well went were what when where
whether which while who whole whom whose why will with within without would written yet you your
"""
"""Prepositions, pronouns, conjunctions, adverbs, auxiliaries, and the participles that stood in for nouns here."""
WITHOUT_SUBJECT = ("Of", "By", "As", "Those", "Likewise", "That", "Which", "Whose", "With", "Where", "Until", "Besides")
"""Words with which a docstring begins that only continues the line above it."""
MAY_BEGIN = ("With --", "As JSON")


class Finding(NamedTuple):
    """A name or a docstring, and where it stands."""

    file: Path
    line: int
    text: str

    def __str__(self) -> str:
        return f"{self.file.relative_to(ROOT)}:{self.line}: {self.text}"


def is_function_word(name: str) -> bool:
    """Whether a name consists of function words alone, or begins with "of"."""
    words = [word for word in name.strip("_").lower().split("_") if word]
    return (
        not name.startswith("__")
        and bool(words)
        and (words[0] == "of" or all(word in FUNCTION_WORDS.split() for word in words))
    )


def bound_names(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """Yield each name that the code binds, and its line: variables, arguments, fields, functions, classes."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id, node.lineno
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.attr, node.lineno
        elif isinstance(node, ast.arg) and node.arg not in ("self", "cls"):
            yield node.arg, node.lineno
        elif isinstance(node, ast.ExceptHandler | ast.MatchAs | ast.MatchStar) and node.name:
            yield node.name, node.lineno
        elif isinstance(node, ast.alias) and node.asname:
            yield node.asname, node.lineno
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name, node.lineno


def docstrings(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """Yield each docstring and its line: of modules, classes and functions, and the text that stands below a field."""
    for node in ast.walk(tree):
        for statement in getattr(node, "body", ()) if isinstance(getattr(node, "body", ()), list) else ():
            value = getattr(statement, "value", None)
            if isinstance(statement, ast.Expr) and isinstance(value, ast.Constant) and isinstance(value.value, str):
                yield value.value, statement.lineno


def has_subject(docstring: str) -> bool:
    """Whether a docstring can be read without the line above it."""
    words = docstring.split()
    return not words or docstring.startswith(MAY_BEGIN) or words[0].rstrip(",.:;") not in WITHOUT_SUBJECT


def examine(files: Iterable[Path]) -> tuple[int, list[Finding], list[Finding]]:
    """Return how many names the files bind, those that are function words, and the docstrings without a subject."""
    count, words, orphans = 0, list[Finding](), list[Finding]()
    for file in files:
        tree = ast.parse(file.read_text())
        names = list(bound_names(tree))
        count += len(names)
        words += [Finding(file, line, name) for name, line in names if is_function_word(name)]
        orphans += [
            Finding(file, line, text.split("\n")[0]) for text, line in docstrings(tree) if not has_subject(text)
        ]
    return count, words, orphans


def main() -> int:
    """Print the counts, and return the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--list", action="store_true", help="print where they stand")
    parser.add_argument("places", nargs="*", type=Path, help="files or folders (default: all sources of the product)")
    given = parser.parse_args()
    places = [place.resolve() for place in given.places] or [ROOT / folder for folder in SOURCES]
    files = [file for place in places for file in (sorted(place.rglob("*.py")) if place.is_dir() else [place])]
    count, words, orphans = examine(files)
    if given.list or orphans:
        print(*(words if given.list else []), *orphans, sep="\n")
    share = len(words) / max(count, 1)
    print(f"{len(words)} of {count} names are function words ({share:.2%}); {len(orphans)} docstrings lack a subject")
    return int(bool(orphans) or share >= MOST_FUNCTION_WORDS)


if __name__ == "__main__":
    sys.exit(main())
