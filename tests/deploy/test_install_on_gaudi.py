"""The install on top of Intel's image: an image with packages of those names, pip itself, no network."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import pip
import pytest
from packaging.requirements import Requirement

from gaudi_tune.define.options import PROJECT_ROOT

pytestmark = pytest.mark.processes

INSTALL = PROJECT_ROOT / "deploy" / "install_on_gaudi.sh"
PACKAGES = PROJECT_ROOT / "deploy" / "image_packages.py"
PINS = PROJECT_ROOT / "constraints.txt"
TORCH = "2.9.0+hpu_1.23.1-25.git8598e6d"
IMAGE = {
    "torch": TORCH,
    "torchvision": "0.24.0",
    "habana-torch-plugin": "1.23.1.25",
    "habana_gpu_migration": "1.23.1.25",
    "numpy": "1.26.4",
    "protobuf": "3.20.3",
}
NEEDS = {"habana-torch-plugin": ["Requires-Dist: protobuf<5"]}
SITE_PACKAGES = f"lib/python{sys.version_info.major}.{sys.version_info.minor}/site-packages"


class Image(NamedTuple):
    """A Python with the packages of an image, and a folder of wheels in place of an index."""

    folder: Path
    wheels: Path

    def environment(self) -> dict[str, str]:
        own = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PIP_"))}
        # Behind an environment's own packages and before the system's, as an image's packages are.
        index = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(self.wheels), "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
        return {**own, **index, "PYTHONUSERBASE": str(self.folder)}

    def run(self, *command: str | Path) -> subprocess.CompletedProcess[str]:
        return subprocess.run(command, env=self.environment(), capture_output=True, text=True, check=False, timeout=120)

    def install(self, venv: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
        return self.run(INSTALL, python_of_the_image(), venv, *arguments)


def python_of_the_image() -> str:
    """Return the Python below the environment of these tests, which has none of its packages."""
    return str(Path(sys.base_prefix) / "bin" / f"python{sys.version_info.major}.{sys.version_info.minor}")


def metadata(name: str, version: str, *needs: str) -> str:
    return "\n".join(["Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}", *needs]) + "\n"


def lay_down(folder: Path, packages: Mapping[str, str]) -> None:
    """Install packages that hold nothing but their metadata."""
    for name, version in packages.items():
        info = folder / SITE_PACKAGES / f"{name.replace('-', '_')}-{version}.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(metadata(name, version, *NEEDS.get(name, [])))


def make_wheel(folder: Path, name: str, version: str, *needs: str) -> None:
    with zipfile.ZipFile(folder / f"{name}-{version}-py3-none-any.whl", "w") as wheel:
        info = f"{name}-{version}.dist-info"
        wheel.writestr(f"{name}/__init__.py", "")
        wheel.writestr(f"{info}/METADATA", metadata(name, version, *(f"Requires-Dist: {need}" for need in needs)))
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{info}/RECORD", "")


def pinned(package: str) -> str:
    """Return the version of a package in constraints.txt for the Python that runs here."""
    pins = [Requirement(line) for line in PINS.read_text().splitlines() if not line.startswith("#")]
    (pin,) = (pin for pin in pins if pin.name == package and (pin.marker is None or pin.marker.evaluate()))
    return str(pin.specifier).removeprefix("==")


def make_image(place: Path) -> Image:
    folder, wheels = place / "image", place / "wheels"
    lay_down(folder, IMAGE)
    # The image's pip, which the environment has to find: the one that runs here.
    (folder / SITE_PACKAGES / "pip").symlink_to(Path(pip.__file__).parent)
    wheels.mkdir()
    make_wheel(wheels, "torch", "2.11.0")
    make_wheel(wheels, "numpy", pinned("numpy"))
    make_wheel(wheels, "numpy", "99.0")
    make_wheel(wheels, "protobuf", "4.25.0")
    make_wheel(wheels, "protobuf", "5.29.0")
    make_wheel(wheels, "project", "1.0", "torch>=2.7", "torchvision>=0.22", "numpy>=2", "protobuf>=4")
    make_wheel(wheels, "demanding", "1.0", "torch>=2.10")
    return Image(folder, wheels)


def version_seen(image: Image, venv: Path, package: str) -> str:
    code = f"from importlib.metadata import version; print(version({package!r}))"
    return image.run(venv / "bin" / "python", "-c", code).stdout.strip()


@pytest.fixture
def image(tmp_path: Path) -> Image:
    return make_image(tmp_path)


class Installed(NamedTuple):
    """An image with an environment that has the project, and what the install printed."""

    image: Image
    venv: Path
    printed: str


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """One for the test that looks at it and, after that, the one that changes it: to install takes seconds."""
    image = make_image(place := tmp_path_factory.mktemp("installed"))
    done = image.install(place / "venv", "project")
    assert done.returncode == 0, done.stdout + done.stderr
    return Installed(image, place / "venv", done.stdout)


def test_the_images_torch_stays_and_other_packages_have_the_tested_versions(installed: Installed) -> None:
    image, venv, printed = installed
    assert version_seen(image, venv, "project") == "1.0"
    assert version_seen(image, venv, "torch") == TORCH  # the index has a newer one
    assert version_seen(image, venv, "numpy") == pinned("numpy")  # the image has an older one, and the index a newer
    assert version_seen(image, venv, "protobuf") == "4.25.0"  # habana's package takes no 5, nor the version of the pins
    left_out = f"protobuf=={pinned('protobuf')} of constraints.txt is left out: the image's packages need protobuf<5"
    assert left_out in printed
    assert not list((venv / SITE_PACKAGES).glob("torch*"))


def test_all_pins_hold_but_those_of_torch_and_of_what_it_rules_out(image: Image, tmp_path: Path) -> None:
    held = tmp_path / "constraints.txt"
    done = image.run(python_of_the_image(), PACKAGES, "constrain", PINS, held)
    assert done.returncode == 0, done.stderr
    kept = dict(line.split("==") for line in held.read_text().splitlines())
    for package in ("ray", "optuna", "mlflow", "transformers", "pandas"):
        assert kept[package] == pinned(package)
    names = {Requirement(line).name for line in PINS.read_text().splitlines() if not line.startswith("#")}
    ruled_out = {"torch", "torchvision", "protobuf", "habana-pyhlml"}
    for_others = names - kept.keys() - ruled_out
    assert ruled_out & kept.keys() == set()
    for name in for_others:  # for other Pythons and systems
        with pytest.raises(ValueError, match="not enough values"):
            pinned(name)


def test_a_requirement_that_the_images_torch_does_not_meet_is_an_error(image: Image, tmp_path: Path) -> None:
    done = image.install(tmp_path / "venv", "demanding")
    assert done.returncode != 0
    assert "torch>=2.10" in done.stdout + done.stderr
    assert version_seen(image, tmp_path / "venv", "torch") == TORCH


def test_the_record_names_the_images_packages_and_no_others(image: Image, tmp_path: Path) -> None:
    done = image.run(python_of_the_image(), PACKAGES, "record", tmp_path / "image.txt")
    assert done.returncode == 0, done.stderr
    held = [line.split("  # ")[0] for line in (tmp_path / "image.txt").read_text().splitlines()]
    assert held[:2] == ["habana-gpu-migration==1.23.1.25", "habana-torch-plugin==1.23.1.25"]
    assert f"torch=={TORCH}" in held
    assert "torchvision==0.24.0" in held
    assert not [line for line in held if line.startswith("numpy")]


def test_another_torch_and_packages_that_vanish_or_appear_fail_the_check(installed: Installed) -> None:
    image, venv, _ = installed
    later = image.run(venv / "bin" / "python", "-m", "pip", "install", "demanding")  # without the record
    assert later.returncode == 0, later.stderr
    (image.folder / SITE_PACKAGES / "torchvision-0.24.0.dist-info" / "METADATA").unlink()
    lay_down(venv, {"torchaudio": "2.9.0"})
    done = image.run(venv / "bin" / "python", PACKAGES, "check", venv / "image.txt")
    assert done.returncode == 1
    assert f"torch: was {TORCH} in {image.folder / SITE_PACKAGES}, is 2.11.0 in {venv / SITE_PACKAGES}" in done.stderr
    assert f"torchaudio: was absent, is 2.9.0 in {venv / SITE_PACKAGES}" in done.stderr
    assert "torchvision: was 0.24.0 in" in done.stderr
    assert "is absent" in done.stderr
    assert f"Remove the environment {venv}" in done.stderr


def test_the_same_version_from_elsewhere_fails_the_install(image: Image, tmp_path: Path) -> None:
    venv = tmp_path / "venv"
    lay_down(venv, {"torch": TORCH})  # an environment that somebody installed into before
    done = image.install(venv, "project")
    assert done.returncode == 1
    assert "error: torch and habana's packages must stay as Intel's image has them. torch: was" in done.stderr


def test_a_base_that_is_not_intels_is_refused(image: Image, tmp_path: Path) -> None:
    (image.folder / SITE_PACKAGES / "habana_torch_plugin-1.23.1.25.dist-info" / "METADATA").unlink()
    done = image.install(tmp_path / "venv", "project")
    assert done.returncode == 1
    assert "finds no habana-torch-plugin. Give its name as BASE_IMAGE" in done.stderr


def test_make_installs_in_the_same_way_on_a_gaudi() -> None:
    command = ["make", "--dry-run", "--always-make", "ON_GAUDI=True", "PYTHON=python3", ".venv/.ready"]
    printed = subprocess.run(command, cwd=PROJECT_ROOT, capture_output=True, text=True, check=True).stdout
    assert "deploy/install_on_gaudi.sh python3 .venv --quiet --editable" in printed


def test_the_dockerfile_installs_in_the_same_way_and_names_no_image() -> None:
    lines = (PROJECT_ROOT / "Dockerfile").read_text().splitlines()
    steps = [line for line in lines if line and not line.startswith("#")]
    assert steps[:2] == ["ARG BASE_IMAGE", "FROM ${BASE_IMAGE}"]
    install = next(step.split() for step in steps if step.startswith("RUN"))
    assert install[1:4] == ["deploy/install_on_gaudi.sh", "python3", ".venv"]
    assert os.access(INSTALL, os.X_OK)
