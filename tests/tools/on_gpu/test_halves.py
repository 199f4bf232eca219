"""The two commands of the first contact with a GPU fit into their time."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.tools.on_gpu import __main__ as on_gpu
from tests.tools.on_gpu.__main__ import END_S, HALF_S, HALVES, Part, parts_on


@pytest.mark.parametrize("half", HALVES)
def test_a_half_ends_in_time_also_if_each_part_is_late(half: int) -> None:
    parts = parts_on("cuda", Path("sweeps"))
    assert sum(parts[name].limit_s + 3 * END_S for name in HALVES[half]) <= HALF_S
    assert {name for names in HALVES.values() for name in names} == {*parts} - {"compiled"}


@pytest.mark.processes
@pytest.mark.parametrize(
    ("found", "parts"), [("{}\nW1128 no compiler", ["versions", "tests"]), ("No module named torch", ["versions"])]
)
def test_a_machine_without_a_compiler_runs_the_other_parts_and_one_without_torch_none(
    found: str, parts: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commands = {"versions": Part(60, ["-c", f"print({found!r})"]), "tests": Part(60, ["-c", "pass"])}
    monkeypatch.setattr(on_gpu, "parts_on", lambda device, sweeps: commands)
    monkeypatch.setattr("sys.argv", ["on_gpu", "--out", str(tmp_path)])
    assert on_gpu.main() == 0
    assert list(json.loads((tmp_path / "parts.json").read_text())) == parts
