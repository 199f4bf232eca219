import multiprocessing
import time
from pathlib import Path

import pytest

from trainables.runtime.node_cache import cache_root, fingerprint, prepare_once


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GAUDI_TUNE_CACHE", str(tmp_path / "cache"))


def fill_slowly(folder: Path) -> None:
    with (folder.parent / "fills.log").open("a") as log:
        log.write("filled\n")
    time.sleep(0.5)
    (folder / "data").write_text("done")


def prepare(_: int) -> str:
    return (prepare_once("thing", {"version": 1}, fill_slowly) / "data").read_text()


@pytest.mark.processes
def test_many_processes_at_once_prepare_once() -> None:
    with multiprocessing.get_context("fork").Pool(4) as pool:
        assert pool.map(prepare, range(4)) == ["done"] * 4
    assert (cache_root() / "fills.log").read_text() == "filled\n"


def test_another_key_is_another_folder() -> None:
    folders = {prepare_once("thing", {"version": version}, fill_slowly) for version in (1, 2)}
    assert len(folders) == 2


def test_a_failed_preparation_leaves_nothing_and_can_be_repeated() -> None:
    def fail(folder: Path) -> None:
        (folder / "half").touch()
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        prepare_once("thing", {}, fail)
    assert not [p for p in cache_root().iterdir() if p.is_dir()]
    assert (prepare_once("thing", {}, fill_slowly) / "data").exists()


def test_a_changed_file_has_another_fingerprint(tmp_path: Path) -> None:
    file = tmp_path / "data.csv"
    file.write_text("a")
    before = fingerprint(str(file))
    file.write_text("ab")
    assert fingerprint(str(file)) != before
    assert fingerprint("a_name_on_the_hub") == ["a_name_on_the_hub"]
