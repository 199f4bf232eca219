"""Counters of what the bridge did in this process."""

from __future__ import annotations

from collections import Counter

COUNTS: Counter[str] = Counter()


class _Metric:
    def __init__(self, name: str) -> None:
        self._name = name

    def stats(self) -> list[tuple[str, int]]:
        """Return counts by name."""
        return [("TotalNumber", COUNTS[self._name])]


def metric_global(name: str) -> _Metric:
    """Return a counter: graph_compilation, recipe_cache, cpu_fallback, or mark_step."""
    return _Metric(name)
