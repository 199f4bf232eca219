"""Workers stay on the cores near their module, in a /sys that is laid out as a driver's."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gaudi_tune.devices import doctor
from gaudi_tune.devices.cores import BIND, DEVICE_ROOT, bind_to_cores_near, cores_of, numa_node_of
from tests.helpers.stand_in_hpu import lay_out_nodes, output_of

CORES = sorted(os.sched_getaffinity(0))


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(DEVICE_ROOT, str(tmp_path))
    monkeypatch.setenv("HABANA_VISIBLE_MODULES", "0,1,2")
    return tmp_path


def test_cores_are_those_of_the_modules_node_that_may_be_used(node: Path) -> None:
    lay_out_nodes(node, [f"0-{CORES[-1]},4000-4010", "4011", ""])
    assert [numa_node_of(module) for module in (0, 1, 2, 7)] == [0, 1, 2, None]
    assert [cores_of(number) for number in (0, 1, 2, 7)] == [set(CORES), set(), set(), set()]
    (finding,) = doctor.cores([0, 1, 2])
    assert finding.result == f"{len(CORES)} of NUMA node 0, 0 of NUMA node 1, 0 of NUMA node 2"
    assert finding.fix.startswith("let the container use cores of NUMA node 1, 2 (--cpuset-cpus)")
    assert bind_to_cores_near(1) == set()
    assert os.sched_getaffinity(0) == set(CORES)


def test_without_a_node_or_where_it_is_not_wanted_nothing_is_bound(node: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lay_out_nodes(node, [str(CORES[0]), str(CORES[0]), str(CORES[0])])
    (node / "sys/class/accel/accel0/device/numa_node").write_text("-1\n")  # of a machine with one node
    (finding,) = doctor.cores([2])
    assert (finding.result, finding.fix) == ("the driver names no NUMA nodes", "")
    assert bind_to_cores_near(2) == set()
    monkeypatch.setenv(BIND, "0")
    assert bind_to_cores_near(0) == set()
    assert os.sched_getaffinity(0) == set(CORES)


BOUND = """
import multiprocessing, os, threading, time
from gaudi_tune.devices.cores import bind_to_cores_near
if __name__ == "__main__":
    other = threading.Thread(target=time.sleep, args=(60,), daemon=True)
    other.start()
    print(bind_to_cores_near(1))
    print(os.sched_getaffinity(0), os.sched_getaffinity(other.native_id))
    with multiprocessing.get_context("forkserver").Pool(1) as loaders:
        print(loaders.apply(os.sched_getaffinity, [0]))
"""


@pytest.mark.processes
def test_a_process_is_bound_with_its_threads_and_those_that_it_starts(tmp_path: Path) -> None:
    near = {CORES[-1]}
    lay_out_nodes(tmp_path, [str(CORES[0]), str(CORES[-1])])
    assert output_of(BOUND, tmp_path) == f"{near}\n{near} {near}\n{near}\n"
