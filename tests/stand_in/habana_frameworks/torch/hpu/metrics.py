"""Counters of what the bridge did in this process, named as the real one's."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

COUNTS: Counter[str] = Counter()
"""Since the process began; ``compile_us`` are microseconds."""
KNOWN = ("graph_compilation", "recipe_cache", "cpu_fallback", "mark_step")


class MetricNotFound(Exception):  # noqa: N818  (the real name)
    """There is no metric of that name."""


def compiled(seconds: float) -> None:
    """Count a compiled graph."""
    COUNTS["graph_compilation"] += 1
    COUNTS["compile_us"] += int(1e6 * seconds)


def cached(*, hit: bool) -> None:
    """Count a look-up of a recipe; the real one does if it is told to."""
    if os.environ.get("PT_HPU_ENABLE_CACHE_METRICS") == "1":
        COUNTS["hits" if hit else "misses"] += 1


class _Metric:
    def __init__(self, name: str, since: Counter[str]) -> None:
        self._name, self._since, self._until = name, since, COUNTS

    def stop(self) -> None:
        """Count no more."""
        self._until = COUNTS.copy()

    def stats(self) -> list[tuple[str, Any]]:
        """Return counts by name; times in microseconds."""
        counts = {name: self._until[name] - self._since[name] for name in self._until}
        number = counts.get(self._name, 0)
        if self._name == "graph_compilation":
            total = counts.get("compile_us", 0)
            return [("TotalNumber", number), ("TotalTime", total), ("AvgTime", total / number if number else 0)]
        if self._name == "recipe_cache":
            counted = [("TotalHit", counts.get("hits", 0)), ("TotalMiss", counts.get("misses", 0))]
            return [*counted, ("RecipeHit", {}), ("RecipeMiss", {})]
        return [("TotalNumber", number), *([("FallbackOps", {})] if self._name == "cpu_fallback" else [])]


def metric_global(name: str) -> _Metric | None:
    """Return a counter: graph_compilation, recipe_cache, cpu_fallback, or mark_step; None if there is none."""
    return _Metric(name, Counter()) if name in KNOWN else None


@contextmanager
def metric_localcontext(name: str) -> Iterator[_Metric]:
    """Hand out a counter of what happens in the block.

    Raises:
        MetricNotFound: There is no such counter.
    """
    if name not in KNOWN:
        raise MetricNotFound(f"Metric with given name ({name}) doesn't exist.")
    metric = _Metric(name, COUNTS.copy())
    try:
        yield metric
    finally:
        metric.stop()
