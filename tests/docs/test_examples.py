"""docs/examples: loops that others wrote, each with the lines that were changed to tune it."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import pytest

from gaudi_tune.define.options import PROJECT_ROOT

EXAMPLES = PROJECT_ROOT / "docs" / "examples"
COUNT: dict[str, Any] = runpy.run_path(str(EXAMPLES / "count.py"))
NAMES: list[str] = COUNT["NAMES"]


def test_twelve_loops_need_few_changes_each() -> None:
    counts = {name: COUNT["of"](name, "tuned") for name in NAMES}
    assert len(counts) == 12
    assert max(counts.values()) <= 10
    assert sorted(counts.values())[5] <= 5
    page = (EXAMPLES / "README.md").read_text()
    assert [name for name, count in counts.items() if f"| [{name}](tuned/{name}.py) | {count} |" not in page] == []


def test_lines_are_counted_where_they_are_rewritten_added_or_deleted() -> None:
    changed = COUNT["changed"]
    assert changed(["a", "b", "c"], ["a", "B", "c", "d"]) == 2
    assert changed(["a", "b", "c"], ["c"]) == 2
    assert changed(["a"], ["    a"]) == 1


@pytest.mark.parametrize("name", NAMES)
def test_its_plan_passes(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    script = EXAMPLES / "tuned" / f"{name}.py"
    options = ["--dry-run", "--device", "cpu", "--storage", str(tmp_path)]
    monkeypatch.setattr("sys.argv", [str(script), *options])
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(script), run_name="__main__")
    printed = capsys.readouterr()
    assert ended.value.code == 0, printed.err
    assert "dry run: all checks passed" in printed.out
    assert printed.out.startswith(f"sweep   {name}-")


@pytest.mark.parametrize("name", ["sft", "dpo", "lora_yaml"])
def test_trainers_of_trl_need_ten_lines(name: str) -> None:
    before, after = (COUNT["lines"](EXAMPLES / "llm" / way / f"{name}.py") for way in ("found", "tuned"))
    assert 0 < COUNT["changed"](before, after) <= 10
