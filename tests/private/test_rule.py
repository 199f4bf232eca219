"""No source outside of private imports what a library keeps private; ruff (SLF) looks after attributes."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from gaudi_tune.define.options import PROJECT_ROOT
from gaudi_tune.private.surfaces import SURFACES

PRIVATE = PROJECT_ROOT / "gaudi_tune" / "private"
OWN = {"gaudi_tune", "experiments", "search_spaces", "trainables"}
UNDOCUMENTED = ("ray.air.execution", "ray.core.generated", "mlflow.system_metrics", "mlflow.utils")
"""Without a name that says so."""


def imported(tree: ast.AST) -> Iterator[str]:
    """Yield the full name of everything that is imported."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def is_private(name: str) -> bool:
    parts = name.split(".")
    private = any(part.startswith("_") and not part.startswith("__") for part in parts)
    return parts[0] != "__future__" and (private or name.startswith(UNDOCUMENTED))


def sources() -> list[Path]:
    return sorted(file for folder in OWN for file in (PROJECT_ROOT / folder).rglob("*.py"))


def test_no_other_source_imports_private_names_or_modules() -> None:
    wrong = [
        f"{file.relative_to(PROJECT_ROOT)}: {name}"
        for file in sources()
        if PRIVATE not in file.parents
        for name in imported(ast.parse(file.read_text()))
        if is_private(name)
    ]
    assert wrong == []


@pytest.mark.parametrize(
    "line",
    [
        "from ray._private.state import state",
        "from ray.train.torch.config import _TorchBackend",
        "import torch._dynamo",
        "from ray.air.execution._internal import RayActorManager",
        "from mlflow.utils.validation import anything",
    ],
)
def test_the_rule_sees_each_kind_of_private_import(line: str) -> None:
    assert [is_private(name) for name in imported(ast.parse(line))] == [True]


def test_private_knows_nothing_of_this_project_but_itself() -> None:
    own = [
        f"{file.name}: {name}"
        for file in sorted(PRIVATE.glob("*.py"))
        for name in imported(ast.parse(file.read_text()))
        if name.split(".")[0] in OWN and not name.startswith("gaudi_tune.private.")
    ]
    assert own == []


def private_names(tree: ast.AST) -> set[str]:
    """Return the private names of others that a module uses, without those that it defines itself."""
    nodes = [*ast.walk(tree)]
    own = {node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    stored = [node for node in nodes if isinstance(getattr(node, "ctx", None), ast.Store)]
    own |= {ast.unparse(node).removeprefix("self.") for node in stored}
    attributes = {node.attr for node in nodes if isinstance(node, ast.Attribute)}
    names = {name.rpartition(".")[2] for name in imported(tree) if is_private(name) and name.split(".")[0] not in OWN}
    return (names | {name for name in attributes if re.match("_[^_]", name)}) - own


def test_a_private_name_is_one_of_others() -> None:
    used = "from ray._private import services\nclass Own:\n  def _do(self, x):\n    self._y = x._z + self._do(1)"
    assert private_names(ast.parse(used)) == {"services", "_z"}


def test_a_surface_looks_up_every_private_name() -> None:
    """But for those of Python, and of the modules that say by themselves what is missing (docs/private-parts.md)."""
    looked_up = {name for surface in SURFACES.values() for name in re.findall(r"\w+", surface.needs)}
    by_themselves = ("accelerate", "lightning", "ray_objects")
    missing = {
        f"{file.stem}: {name}"
        for file in PRIVATE.glob("*.py")
        if file.stem not in by_themselves
        for name in private_names(ast.parse(file.read_text())) - looked_up
    }
    assert missing == {"global_state: _autograd", "global_state: _current_frames", "setup_worker: _exit"}


def test_every_module_of_private_has_contract_tests() -> None:
    tested = " ".join(file.read_text() for file in Path(__file__).parent.glob("test_*.py"))
    modules = [file.stem for file in PRIVATE.glob("*.py") if file.stem != "__init__"]
    assert [name for name in modules if f"private.{name} import" not in tested and f" {name}" not in tested] == []
