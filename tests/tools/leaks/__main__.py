"""Tries each way in which a trial can leave something behind, in real workers, and prints what becomes of it.

    python -m tests.tools.leaks [--only TEXT] [--write]

One trial leaves it, and the next one of the same trial actor looks for it. Prints "clean", "new workers" or "stays" for
each, and exits with 1 if one has another end than tests/tools/leaks/ways.py says. Takes about ten minutes on 2 cores.
``--write`` puts what that file says into docs/what-stays.md, and tries nothing.
"""

from __future__ import annotations

import argparse
import logging
import sys
import tempfile

import ray

from gaudi_tune.define.options import PROJECT_ROOT
from gaudi_tune.on_ray.local_ray import ENVIRONMENT
from tests.tools.leaks import ways
from tests.tools.leaks.actor import PAIRS, Actor

PAGE = PROJECT_ROOT / "docs" / "what-stays.md"
BEGIN, END = "<!-- begin: python -m tests.tools.leaks --write -->", "<!-- end -->"
WORDS = {ways.CLEAN: "clean", ways.NEW_WORKERS: "the next trial gets new workers", ways.STAYS: "**stays**"}


def tables() -> str:
    """Return the tables of the page, one for each section."""
    lines = []
    for section, members in ways.SECTIONS.items():
        lines += [f"## {section}", "", "| left behind | what becomes of it |", "|---|---|"]
        lines += [f"| {way.name} | {f'{WORDS[way.outcome]}. {way.note}'.strip()} |" for way in members]
        lines.append("")
    return "\n".join(lines)


def try_ways(actor: Actor, chosen: list[str]) -> dict[str, str]:
    """Return what becomes of each."""
    new = actor.run([], chosen)
    outcomes = {}
    for name in chosen:
        left = actor.run([name], [])
        again = [name] if PAIRS[name] in ways.ONCE else []
        found = actor.run(again, [name])
        if found[name] != new[name]:
            outcomes[name] = ways.STAYS
        elif found["worker_pid"] != left["worker_pid"]:
            outcomes[name] = ways.NEW_WORKERS
        else:
            outcomes[name] = ways.CLEAN
        mark = "" if outcomes[name] == PAIRS[name].outcome else f"  EXPECTED {PAIRS[name].outcome}"
        details = f"  ({new[name]} -> {found[name]})" if mark else ""
        details += f"  [{found['gaudi_tune/new_workers']}]" if "gaudi_tune/new_workers" in found else ""
        print(f"{outcomes[name]:<12} {name}{mark}{details}", flush=True)
    return outcomes


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="only ways with this in their names")
    parser.add_argument("--write", action="store_true", help="write docs/what-stays.md alone")
    arguments = parser.parse_args()
    if arguments.write:
        begin, rest = PAGE.read_text().split(BEGIN)
        PAGE.write_text(f"{begin}{BEGIN}\n\n{tables()}\n{END}{rest.split(END)[1]}")
        return
    chosen = [name for name in PAIRS if arguments.only in name]
    with tempfile.TemporaryDirectory() as storage:
        variables = {**ENVIRONMENT, "PYTHONPATH": str(PROJECT_ROOT), "OMP_NUM_THREADS": "1"}
        ray.init(
            "local", num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR,
            runtime_env={"env_vars": variables},
        )  # fmt: skip
        actor = Actor(storage)
        outcomes = try_ways(actor, chosen)
        actor.end()
        ray.shutdown()
    counts = {outcome: list(outcomes.values()).count(outcome) for outcome in (ways.CLEAN, ways.NEW_WORKERS, ways.STAYS)}
    print(f"{len(outcomes)} ways: " + ", ".join(f"{count} {outcome}" for outcome, count in counts.items()))
    sys.exit(any(outcomes[name] != PAIRS[name].outcome for name in outcomes))


if __name__ == "__main__":
    main()
