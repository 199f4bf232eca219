"""What tests.tools.faults and tests.tools.hosts share: kinds of harm by name, and what sweeps have lost by each."""

from __future__ import annotations

import argparse
import json
import signal
import sys
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple, NoReturn

from rich.console import Console
from rich.table import Table

COSTS = ("lost", "doubled", "leaked")


class Result(NamedTuple):
    """What one kind of harm did."""

    kind: str
    runs: int
    costs: Mapping[str, int]
    """How often something was lost, doubled, leaked."""
    columns: Mapping[str, str]
    """What the table has besides."""


def parsed(parser: argparse.ArgumentParser, kinds: Collection[str], times: int) -> argparse.Namespace:
    """Read the command line: some kinds, all of them if none is named, and how often each."""
    parser.add_argument("kinds", nargs="*", metavar="KIND", help=f"of {', '.join(kinds)}; none: all")
    parser.add_argument("--times", type=int, default=times, help="how often each kind")
    asked = parser.parse_args()
    if unknown := set(asked.kinds) - set(kinds):
        parser.error(f"no such kinds: {', '.join(unknown)}; there are {', '.join(kinds)}")
    asked.kinds = asked.kinds or list(kinds)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # by way of every finally
    return asked


def conclude(results: Sequence[Result]) -> NoReturn:
    """Print a table and a JSON object of all results, and exit with 1 if anything was lost, doubled or leaked."""
    table = Table("kind", "runs", *COSTS, *results[0].columns, box=None, pad_edge=False)
    for kind, runs, costs, columns in results:
        table.add_row(kind, str(runs), *(str(costs.get(what, 0)) for what in COSTS), *columns.values())
    Console(width=140).print(table)
    total = {what: sum(result.costs.get(what, 0) for result in results) for what in COSTS}
    print(json.dumps({"kinds": len(results), "runs": sum(result.runs for result in results), **total}))
    sys.exit(any(total.values()))
