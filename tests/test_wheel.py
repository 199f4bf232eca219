"""What a wheel installs: one package, which a user's own folders of any name leave alone."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
import sysconfig
import zipfile
from collections.abc import Iterator
from email import message_from_bytes
from email.message import Message
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from gaudi_tune.define.options import PROJECT_ROOT
from gaudi_tune.group.clean.own_code import ONCE

pytestmark = pytest.mark.processes

SCRIPT = """
from ray import tune

import search_spaces
import trainables
from gaudi_tune import Experiment, main, report


def train_loop(config):
    for epoch in range(1, config["epochs"] + 1):
        report({"loss": trainables.loss(config["x"]) + 1 / epoch})


main(Experiment(train_loop=train_loop, space=search_spaces.SPACE, metric="loss"))
"""


EXTRA_OF = {
    "gaudi_tune/recipes/": "recipes",
    "gaudi_tune/data/": "recipes",
    "gaudi_tune/private/datasets.py": "recipes",
    "gaudi_tune/integrations/hugging_face.py": "huggingface",
    "gaudi_tune/integrations/lightning.py": "lightning",
    "gaudi_tune/devices/device_monitors.py": "hpu",
}
"""The files that may import what an extra installs."""
NOT_REQUIRED = {"habana_frameworks", "IPython", "pynvml"}
"""Modules that a Gaudi's image, an environment for GPUs and a notebook bring."""
HIDDEN = ("accelerate", "datasets", "evaluate", "lightning", "peft", "tokenizers", "torchvision", "transformers")
"""Modules that only extras install. Others of theirs come with Ray, MLflow and torch."""


def run(*command: str | Path, folder: Path, **variables: str) -> str:
    """Run a command there, without the checkout on its path, and return what it printed."""
    ran = subprocess.run(
        [*map(str, command)], cwd=folder, env={"PATH": "/usr/bin:/bin", "HOME": str(folder), **variables},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from a copy of what git knows of the checkout."""
    folder = tmp_path_factory.mktemp("wheel")
    files = subprocess.run(["git", "ls-files", "-z"], cwd=PROJECT_ROOT, capture_output=True, check=True).stdout
    for name in filter(None, files.decode().split("\0")):
        if (PROJECT_ROOT / name).is_file():
            (folder / "source" / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / "source" / name).write_bytes((PROJECT_ROOT / name).read_bytes())
    build = f"from setuptools import build_meta; build_meta.build_wheel({str(folder)!r})"
    run(sys.executable, "-c", build, folder=folder / "source")
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def python(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment that has the wheel, but no library and not the checkout."""
    folder = tmp_path_factory.mktemp("environment")
    run(sys.executable, "-m", "venv", "--without-pip", folder, folder=folder)
    python = folder / "bin" / "python"
    install = [sys.executable, "-m", "pip", f"--python={python}", "install", "--no-deps", "--no-compile", "--quiet"]
    run(*install, wheel, folder=folder)
    return python


@pytest.fixture(scope="module")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder as ``pip install --target`` makes it, with this environment's libraries, but not those of extras."""
    folder = tmp_path_factory.mktemp("libraries")
    for installed in Path(sysconfig.get_path("purelib")).iterdir():
        if installed.name.partition(".")[0] not in HIDDEN:  # their dist-info may stay
            (folder / installed.name).symlink_to(installed)
    return folder


def test_it_installs_one_package_with_its_types(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.split("/")[0].split("-")[0] for name in names} == {"gaudi_tune"}
    assert {"gaudi_tune/py.typed", "gaudi_tune/show/pictures/report.html"} <= set(names)


def metadata(wheel: Path) -> Message:
    """What an index gets to know of the wheel."""
    with zipfile.ZipFile(wheel) as archive:
        (file,) = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        return message_from_bytes(archive.read(file))


def test_its_readme_links_to_no_files(wheel: Path) -> None:
    """On an index there are none beside it."""
    told = metadata(wheel)
    assert told["Description-Content-Type"] == "text/markdown"
    readme = str(told.get_payload())
    assert "## How it works" in readme
    assert "[" in readme and re.findall(r"\]\((?!https?:)", readme) == []


def required(wheel: Path, extra: str = "") -> set[str]:
    """The packages that the wheel installs with an extra, or without one; an extra that it names is not looked up."""
    requirements = [Requirement(line) for line in metadata(wheel).get_all("Requires-Dist", [])]
    return {
        canonicalize_name(each.name)
        for each in requirements
        if each.marker is None or each.marker.evaluate({"python_version": "3.10", "extra": extra})
    }


def test_each_package_that_it_names_has_one_exact_version_in_the_checkout(wheel: Path) -> None:
    """Without it, the environment of the tests would be another one whenever that package has a new version."""
    named = {Requirement(line).name for line in metadata(wheel).get_all("Requires-Dist", [])} - {"gaudi-tune"}
    pinned = re.findall(r"^([\w.-]+)==", (PROJECT_ROOT / "constraints.txt").read_text(), re.MULTILINE)
    assert named - set(pinned) == set()


def imports_at_run_time(tree: ast.AST) -> Iterator[str]:
    """The top modules that the code imports anywhere, but not those that it imports for types alone."""
    if isinstance(tree, ast.If) and isinstance(tree.test, ast.Name) and tree.test.id == "TYPE_CHECKING":
        return
    if isinstance(tree, ast.Import):
        yield from (alias.name.partition(".")[0] for alias in tree.names)
    elif isinstance(tree, ast.ImportFrom) and tree.module:
        yield tree.module.partition(".")[0]
    for node in ast.iter_child_nodes(tree):
        yield from imports_at_run_time(node)


def test_it_requires_what_the_package_imports_and_nothing_else(wheel: Path) -> None:
    """What only the checkout's recipes read, or only the trainer of another library needs, is an extra."""
    distributions = {**packages_distributions(), "pyhlml": ["habana-pyhlml"], "tomli": ["tomli"]}
    allowed = {extra: required(wheel, extra) for extra in {"", *EXTRA_OF.values()}}
    plain, wrong, used, anywhere = allowed[""], [], set(), set(NOT_REQUIRED)
    for file in sorted((PROJECT_ROOT / "gaudi_tune").rglob("*.py")):
        name = str(file.relative_to(PROJECT_ROOT))
        extra = next((extra for start, extra in EXTRA_OF.items() if name.startswith(start)), "")
        modules = set(imports_at_run_time(ast.parse(file.read_text()))) - sys.stdlib_module_names - NOT_REQUIRED
        anywhere |= set() if extra else modules - {"gaudi_tune"}
        for module in sorted(modules - {"gaudi_tune"}):
            packages = {canonicalize_name(package) for package in distributions[module]}
            used |= packages
            if not packages & allowed[extra]:
                wrong.append(f"{name} imports {module}")
    assert wrong == []
    assert plain - used == set()
    assert {*anywhere, "tomli"} - {"IPython"} == ONCE, "what the package runs on is never loaded again for a trial"
    assert not {"transformers", "torchvision", "datasets", "evaluate", "matplotlib", "networkx"} & plain
    assert allowed["huggingface"] - plain == {"accelerate", "peft", "transformers"}
    assert allowed["lightning"] - plain == {"lightning"}


def test_it_tunes_with_libraries_in_and_beside_folders_of_any_name(
    python: Path, libraries: Path, tmp_path: Path
) -> None:
    """On some clusters libraries are in folders on PYTHONPATH, which are not called site-packages."""
    for package in ("experiments", "trainables"):
        (tmp_path / package).mkdir()
        (tmp_path / package / "__init__.py").write_text("def loss(x): return x * x\n")
    (tmp_path / "search_spaces.py").write_text("from ray import tune\n\nSPACE = {'x': tune.uniform(-1.0, 1.0)}\n")
    (tmp_path / "my.py").write_text(SCRIPT)
    options = ["--num-samples", "3", "--epochs", "2", "--device", "cpu", "--name", "beside", "--confirm", "0"]
    found = {"PYTHONPATH": str(libraries)}  # Python reads no .pth files there, and so none that leads to the checkout
    run(python, "my.py", *options, folder=tmp_path, **found)
    summary = json.loads((tmp_path / "results" / "beside" / "summary.json").read_text())
    assert sum(summary["counts"].values()) == 3
    assert "beside" in run(python.with_name("gaudi-tune"), "ls", folder=tmp_path, **found)
    assert "beside" in run(python, "-m", "gaudi_tune", "ls", folder=tmp_path, **found)
