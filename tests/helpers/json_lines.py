"""A second tracker, in one file: it writes every event of a sweep as a line of JSON."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from gaudi_tune.sweep.record.events import Event, SweepEnded
from gaudi_tune.sweep.record.sweep_state import SweepState


class JsonLinesTracker:
    """Keeps a sweep in a file."""

    name = "json lines"
    hint = ""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._model: str | None = None

    @property
    def address(self) -> str:
        return str(self._file)

    def load_line(self) -> str | None:
        return self._model

    def show(self, event: Event, state: SweepState) -> None:
        if isinstance(event, SweepEnded) and event.summary["best"] is not None:
            self._model = f"torch.load({event.summary['best']['checkpoint']!r}, weights_only=True)"
        self._write({"event": type(event).__name__, **asdict(event)})

    def tick(self, state: SweepState) -> None:
        pass

    def flush(self) -> None:
        pass

    def close(self) -> str:
        self._write({"event": "closed"})
        return ""

    def _write(self, entry: dict[str, Any]) -> None:
        with self._file.open("a") as lines:
            lines.write(json.dumps(entry, default=str) + "\n")

    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self._file.read_text().splitlines()]
