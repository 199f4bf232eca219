import multiprocessing
import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from gaudi_tune.base.node_cache import cache_root, fingerprint, first_alone, prepare_once


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


def test_a_folder_is_for_whom_the_umask_says() -> None:
    before = os.umask(0o022)
    try:
        folder = prepare_once("thing", {"for": "all"}, lambda folder: (folder / "data").touch())
    finally:
        os.umask(before)
    assert folder.stat().st_mode & 0o777 == 0o755


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
    (tmp_path / "splits").mkdir()
    (link := tmp_path / "splits" / "val.csv").symlink_to(file)
    of_link = fingerprint(str(tmp_path / "splits"))
    link.rename(tmp_path / "splits" / "other.csv")
    assert fingerprint(str(tmp_path / "splits")) != of_link
    assert fingerprint("a_name_on_the_hub") == ["a_name_on_the_hub"]


def test_one_runs_a_block_alone_before_the_others(tmp_path: Path) -> None:
    seen: list[str] = []
    together = threading.Barrier(3)

    def run(_: int) -> None:
        with first_alone(tmp_path / "graphs", {"version": 1}):
            seen.append("in")
            if len(seen) == 1:
                time.sleep(0.3)
                seen.append("out")
            else:
                together.wait(timeout=20)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(run, range(4)))
    assert seen == ["in", "out", "in", "in", "in"]


def test_another_process_is_the_first_after_a_failure(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="lost"), first_alone(tmp_path, {}):
        raise OSError("lost")
    with first_alone(tmp_path, {}):
        assert not [*tmp_path.glob("*.done")]
    assert [*tmp_path.glob("*.done")]


def test_no_source_is_not_the_current_folder() -> None:
    assert fingerprint("") == [""]
