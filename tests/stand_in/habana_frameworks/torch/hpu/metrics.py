"""Counters of what the bridge did in this process, named as the real one's."""

from __future__ import annotations

import os
from collections import Counter
from typing import Any

COUNTS: Counter[str] = Counter()
_compile_us = 0


def compiled(seconds: float) -> None:
    """Count a compiled graph."""
    global _compile_us
    COUNTS["graph_compilation"] += 1
    _compile_us += int(1e6 * seconds)


def cached(*, hit: bool) -> None:
    """Count a look-up of a recipe; the real one does if it is told to."""
    if os.environ.get("PT_HPU_ENABLE_CACHE_METRICS") == "1":
        COUNTS["hits" if hit else "misses"] += 1


class _Metric:
    def __init__(self, name: str) -> None:
        self._name = name

    def stats(self) -> list[tuple[str, Any]]:
        """Return counts by name; times in microseconds."""
        number = COUNTS[self._name]
        if self._name == "graph_compilation":
            average = _compile_us / number if number else 0
            return [("TotalNumber", number), ("TotalTime", _compile_us), ("AvgTime", average)]
        if self._name == "recipe_cache":
            counted = [("TotalHit", COUNTS["hits"]), ("TotalMiss", COUNTS["misses"])]
            return [*counted, ("RecipeHit", {}), ("RecipeMiss", {})]
        return [("TotalNumber", number), *([("FallbackOps", {})] if self._name == "cpu_fallback" else [])]


def metric_global(name: str) -> _Metric | None:
    """Return a counter: graph_compilation, recipe_cache, cpu_fallback, or mark_step; None if there is none."""
    known = ("graph_compilation", "recipe_cache", "cpu_fallback", "mark_step")
    return _Metric(name) if name in known else None
