"""The clock of a trial where a device compiles in several threads at a time, and counts the seconds of each."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields

import pytest

from gaudi_tune.devices.cpu import Cpu
from gaudi_tune.devices.find import DEVICE_TYPES
from gaudi_tune.devices.worker_side import Counted
from gaudi_tune.recipes.compiling import Compiling
from gaudi_tune.recipes.step_times import StepTimer
from tests.helpers.small_task import SmallConfig

THREADS = 8
COMPILE_S = 0.1


class ParallelCompiler(Cpu):
    """A CPU that compiles in eight threads and adds up their seconds, as habana does."""

    compiled_s = 0.0

    def counted(self) -> Counted:
        return Counted(compilations=0, compile_s=self.compiled_s, cpu_fallbacks=0, cache_hits=None)

    def compile_graphs(self) -> None:
        with ThreadPoolExecutor(THREADS) as pool:
            list(pool.map(time.sleep, [COMPILE_S] * THREADS))
        self.compiled_s += THREADS * COMPILE_S


@pytest.fixture
def device() -> ParallelCompiler:
    return ParallelCompiler(**{field.name: getattr(DEVICE_TYPES["cpu"], field.name) for field in fields(Cpu)})


def test_parallel_compilations_take_no_more_than_the_time_that_passed(device: ParallelCompiler) -> None:
    compiling = Compiling(SmallConfig(epochs=1), device, rank=0, world=1)
    began_at = time.perf_counter()
    device.compile_graphs()
    compiled_s, trained_before_s = compiling.seconds(), compiling.clock()
    time.sleep(2 * COMPILE_S)
    trained_s = compiling.clock() - trained_before_s
    passed_s = time.perf_counter() - began_at
    assert compiled_s == pytest.approx(passed_s - trained_s, abs=3 * COMPILE_S)  # all threads take 8
    assert trained_s >= 2 * COMPILE_S  # the excess of the compilations is not taken off here
    assert compiling.seconds() == compiled_s


def test_a_throughput_comes_from_at_least_a_tenth_of_the_time(device: ParallelCompiler) -> None:
    compiling = Compiling(SmallConfig(epochs=1), device, rank=0, world=1)
    timer = StepTimer(compiling.clock, device.synchronize)
    timer.first_step_has_ended()
    device.compile_graphs()  # by its own count, all of the second step is compilation
    times = timer.stop(steps=2)
    assert times.step_s >= 0.1 * COMPILE_S
