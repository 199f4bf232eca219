"""Counters of what the bridge did in this process, named as the real one's."""

from __future__ import annotations

import os
from collections import Counter
from typing import Any

from habana_frameworks.torch import _device

COUNTS: Counter[str] = Counter()
"""Since the process began, but for compilations, which the device counts."""
KNOWN = ("graph_compilation", "recipe_cache", "cpu_fallback", "mark_step")


def _now() -> Counter[str]:
    """Return all counts; ``compile_us`` are microseconds, the sum of all threads that compile."""
    number, seconds = _device.compiled()
    return COUNTS + Counter(graph_compilation=number, compile_us=round(1e6 * seconds))


def cached(*, hit: bool) -> None:
    """Count a look-up of a recipe; the real one does if it is told to."""
    if os.environ.get("PT_HPU_ENABLE_CACHE_METRICS") == "1":
        COUNTS["hits" if hit else "misses"] += 1


class _Metric:
    def __init__(self, name: str) -> None:
        self._name = name

    def stats(self) -> list[tuple[str, Any]]:
        """Return counts by name; times in microseconds."""
        counts = _now()
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
    return _Metric(name) if name in KNOWN else None
