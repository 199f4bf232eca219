"""Device metrics: HPUs on the stand-in for pyhlml, GPUs with a module in pynvml's place, the host for real."""

from __future__ import annotations

import json
import logging
import math
import sys
import threading
import time
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, ClassVar

import psutil
import pytest

from gaudi_tune.base import names
from gaudi_tune.define.options import PROJECT_ROOT
from gaudi_tune.devices import device_metrics
from gaudi_tune.devices.cpu import CPU
from gaudi_tune.devices.device_metrics import PREFIX, DeviceMetrics, TrialCounts
from gaudi_tune.devices.device_monitors import GpuMonitor, HostMonitor
from tests.helpers.stand_in_hpu import fork, forked_output_of

NEVER_S = 3600.0
MEMORY = "hpu_0_memory_usage_megabytes"
TAKE_TWICE = """
import json, logging, sys, time
logging.basicConfig(format="%(levelname)s %(message)s")
from gaudi_tune.devices.device_metrics import DeviceMetrics
from gaudi_tune.devices.find import DEVICE_TYPES
assert "mlflow" not in sys.modules, "MLflow is imported before anyone wants metrics"
{before}
metrics = DeviceMetrics(DEVICE_TYPES[{kind!r}], {index})
while not (first := metrics.take()):
    time.sleep(0.05)
print("first", json.dumps(first))
print("second", json.dumps(metrics.take()))
metrics.close()
{after}
"""


def taken_twice(kind: str, index: int, folder: Path, before: str = "", after: str = "", **variables: str) -> str:
    """Run a process that takes metrics twice, and return what it printed."""
    code = TAKE_TWICE.format(kind=kind, index=index, before=before, after=after)
    return forked_output_of(code, folder, **variables)


def metrics_in(output: str, which: str, device: str) -> dict[str, float]:
    """Return the metrics of a kind of device that :data:`TAKE_TWICE` printed, without ``system/``."""
    (line,) = (line for line in output.splitlines() if line.startswith(f"{which} "))
    values: dict[str, float] = json.loads(line.removeprefix(which))
    names = {name: name.removeprefix("system/") for name in values}
    assert all(name != short for name, short in names.items())
    return {short: values[name] for name, short in names.items() if short.startswith(device)}


def warnings_in(output: str) -> list[str]:
    return [line.removeprefix("WARNING ") for line in output.splitlines() if line.startswith("WARNING ")]


class Scripted:
    """A monitor that tells given samples, and then fails."""

    def __init__(self, samples: Iterable[dict[str, float]]) -> None:
        self._samples = iter(samples)
        self.exhausted = threading.Event()

    def sample(self) -> dict[str, float]:
        try:
            return next(self._samples)
        except StopIteration:
            self.exhausted.set()
            raise RuntimeError("no more") from None


def metrics_of(monitors: list[Any], every_s: float, monkeypatch: pytest.MonkeyPatch) -> closing[DeviceMetrics]:
    monkeypatch.setattr(device_metrics, "_monitors", lambda kind, index: monitors)
    monkeypatch.setattr(device_metrics, "FIRST_SAMPLE_S", 0.0)
    return closing(DeviceMetrics(CPU, None, every_s))


def first_of(metrics: DeviceMetrics) -> dict[str, float]:
    """Return what is taken as soon as there is a sample."""
    while not (values := metrics.take()):
        time.sleep(0.01)
    return values


@pytest.mark.processes
def test_an_hpu_is_found_by_its_module_id_and_measured_in_the_units_of_the_names(tmp_path: Path) -> None:
    own = "import torch, habana_frameworks.torch as t; torch.ones(1, device='hpu'); print('mine', flush=True)"
    owner = fork(f"{own}; import time; time.sleep(600)", tmp_path, HLS_MODULE_ID="5")
    assert owner.stdout.readline() == "mine\n"
    output, of_idle = taken_twice("hpu", 5, tmp_path), taken_twice("hpu", 2, tmp_path)
    owner.kill()
    busy = {
        "hpu_5_utilization_percentage": 95.0,
        "hpu_5_memory_usage_percentage": 6.2,  # 6 of 96 GiB
        "hpu_5_memory_usage_megabytes": 6442.5,
        "hpu_5_memory_usage_megabytes_max": 6442.5,
        "hpu_5_power_usage_watts": 405.0,
        "hpu_5_temperature_celsius": 65.0,
    }
    idle = {
        "hpu_2_utilization_percentage": 0.0,
        "hpu_2_memory_usage_percentage": 0.5,
        "hpu_2_memory_usage_megabytes": 536.9,
        "hpu_2_memory_usage_megabytes_max": 536.9,
        "hpu_2_power_usage_watts": 102.0,
        "hpu_2_temperature_celsius": 32.0,
    }
    assert metrics_in(output, "first", "hpu") == metrics_in(output, "second", "hpu") == busy
    assert metrics_in(of_idle, "first", "hpu") == idle
    assert metrics_in(output, "first", "cpu").keys() == {"cpu_utilization_percentage"}
    assert warnings_in(output) == []


@pytest.mark.processes
def test_a_module_that_is_not_listed_is_said_once_and_nothing_is_acquired(tmp_path: Path) -> None:
    given_back = {"after": "import pyhlml; pyhlml.hlmlInit(); print('free again')"}
    output = taken_twice("hpu", 9, tmp_path, **given_back, HABANA_STAND_IN_MODULES="4")
    assert warnings_in(output) == ["no metrics of hpu 9: LookupError: pyhlml lists modules [0, 1, 2, 3]"]
    assert metrics_in(output, "second", "cpu") and "hpu_9" not in output
    assert "free again" in output
    assert not (tmp_path / "acquisitions.jsonl").exists()


@pytest.mark.processes
def test_indices_need_not_begin_at_0_and_the_library_is_given_back(tmp_path: Path) -> None:
    """In a container with a part of a node: two devices, /dev/hl4 and /dev/hl5, which are modules 7 and 0."""
    output = taken_twice(
        "hpu", 0, tmp_path,
        before="""
import pyhlml
real = pyhlml.hlmlDeviceGetHandleByIndex
def two(index):
    return real(index if index in (4, 5) else 99)
pyhlml.hlmlDeviceGetHandleByIndex, pyhlml.hlmlDeviceGetCount = two, lambda: 2""",
        after="pyhlml.hlmlInit(); print('free again')",
    )  # fmt: skip
    assert metrics_in(output, "first", "hpu")["hpu_0_temperature_celsius"] == 30.0
    assert "free again" in output


@pytest.mark.processes
def test_a_quantity_that_a_device_does_not_report_is_left_out_and_said_once(tmp_path: Path) -> None:
    output = taken_twice(
        "hpu", 3, tmp_path,
        before="""
import pyhlml
def refuse(device):
    raise pyhlml.HLMLError(3)
pyhlml.hlmlDeviceGetPowerUsage = refuse""",
    )  # fmt: skip
    assert warnings_in(output) == ["HPU module 3: no power: HLMLError: HLML Error with code 3"]
    assert metrics_in(output, "second", "hpu").keys() == {
        "hpu_3_utilization_percentage",
        "hpu_3_memory_usage_percentage",
        "hpu_3_memory_usage_megabytes",
        "hpu_3_memory_usage_megabytes_max",
        "hpu_3_temperature_celsius",
    }


@pytest.mark.processes
@pytest.mark.parametrize(
    ("kind", "package", "fix"),
    [("hpu", "pyhlml", "pip install habana-pyhlml"), ("cuda", "pynvml", "pip install nvidia-ml-py")],
)
def test_without_the_library_there_is_one_line_and_the_host(kind: str, package: str, fix: str, tmp_path: Path) -> None:
    (tmp_path / f"{package}.py").write_text("raise ModuleNotFoundError('not installed')\n")
    output = taken_twice(kind, 0, tmp_path, PYTHONPATH=f"{tmp_path}:{PROJECT_ROOT}")
    (line,) = warnings_in(output)
    assert line.startswith(f"no metrics of {kind} 0: ") and fix in line
    for which in ("first", "second"):
        assert metrics_in(output, which, "cpu") and metrics_in(output, which, "system_memory")


def test_the_host_is_measured_for_real() -> None:
    with closing(DeviceMetrics(CPU, None, 0.5)) as metrics:
        until = time.monotonic() + 1.0
        while time.monotonic() < until:
            math.factorial(1000)
        values = metrics.take()
    total_mb = psutil.virtual_memory().total / 1e6
    assert 100 * 0.5 / (psutil.cpu_count() or 1) < values["system/cpu_utilization_percentage"] <= 100
    assert 100 < values["system/system_memory_usage_megabytes"] < total_mb
    assert values["system/system_memory_usage_megabytes"] <= values["system/system_memory_usage_megabytes_max"]
    share = values["system/system_memory_usage_megabytes"] / total_mb * 100
    assert values["system/system_memory_usage_percentage"] == pytest.approx(share, abs=1)


class Nvml(ModuleType):
    """NVML's module with four GPUs in its place."""

    class NVMLError(Exception):
        pass

    read: ClassVar[list[int]] = []

    def __init__(self) -> None:
        super().__init__("pynvml")
        self.nvmlInit, self.nvmlDeviceGetCount = lambda: None, lambda: 4
        self.nvmlDeviceGetHandleByIndex = range(4).__getitem__
        self.nvmlDeviceGetUtilizationRates = lambda gpu: SimpleNamespace(gpu=10 * gpu)
        self.nvmlDeviceGetPowerUsage = lambda gpu: 100_000 * gpu
        self.nvmlDeviceGetEnforcedPowerLimit = lambda gpu: 400_000
        self.nvmlDeviceGetMemoryInfo = self._memory

    def _memory(self, gpu: int) -> SimpleNamespace:
        self.read.append(gpu)
        return SimpleNamespace(used=(gpu + 1) * 1e9, total=8e9)


def test_a_gpu_has_the_names_that_mlflow_gives_it_and_the_others_are_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    from mlflow.system_metrics.metrics import gpu_monitor

    monkeypatch.setitem(sys.modules, "pynvml", Nvml())
    monkeypatch.setattr(gpu_monitor, "pynvml", Nvml(), raising=False)
    sample, read = GpuMonitor(3).sample(), list(Nvml.read)
    assert (sample["gpu_3_memory_usage_megabytes"], sample["gpu_3_power_usage_percentage"]) == (4000.0, 75.0)
    mlflows = gpu_monitor.GPUMonitor()
    mlflows.collect_metrics()
    assert sample == {name: value for name, value in mlflows.aggregate_metrics().items() if name.startswith("gpu_3_")}
    assert read == [3]
    with pytest.raises(IndexError):
        GpuMonitor(9)


@pytest.mark.processes
def test_the_host_has_the_names_that_mlflow_gives_it() -> None:
    from mlflow.system_metrics.metrics.cpu_monitor import CPUMonitor

    mlflows = CPUMonitor()
    mlflows.collect_metrics()
    assert set(HostMonitor().sample()) == set(mlflows.aggregate_metrics())


def test_means_and_the_highest_memory_without_what_is_no_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monitor = Scripted(
        [
            {MEMORY: 100.0, "cpu_utilization_percentage": 10.0, "absent": math.nan},
            {MEMORY: 400.0, "cpu_utilization_percentage": 20.0, "absent": math.inf},
            {MEMORY: 100.0, "cpu_utilization_percentage": math.nan},
        ]
    )
    with metrics_of([monitor], 0.01, monkeypatch) as metrics:
        assert monitor.exhausted.wait(60)
        assert metrics.take() == {
            f"system/{MEMORY}": 200.0,
            f"system/{MEMORY}_max": 400.0,
            "system/cpu_utilization_percentage": 15.0,
        }


def test_a_report_faster_than_the_samples_has_the_last_one_again(monkeypatch: pytest.MonkeyPatch) -> None:
    with metrics_of([Scripted([{"a": 1.0}, {"a": 5.0}])], NEVER_S, monkeypatch) as metrics:
        assert [first_of(metrics), metrics.take()] == [{"system/a": 1.0}] * 2


def test_a_monitor_that_fails_is_said_once(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    class Broken(Scripted):
        pass

    told = Scripted([{"a": 1.0}] * 3)
    with caplog.at_level(logging.WARNING), metrics_of([Broken([]), told], 0.01, monkeypatch) as metrics:
        assert told.exhausted.wait(60)
        assert metrics.take() == {"system/a": 1.0}
    said = [record.getMessage() for record in caplog.records]
    assert said.count("no metrics of Broken: RuntimeError: no more") == 1


def test_a_reading_that_hangs_holds_up_no_report_and_no_end(monkeypatch: pytest.MonkeyPatch) -> None:
    over = threading.Event()

    class Hanging(Scripted):
        def sample(self) -> dict[str, float]:
            over.wait(30)
            return {}

    monkeypatch.setattr(device_metrics, "CLOSE_WAITS_S", 0.1)
    began = time.monotonic()
    with metrics_of([Hanging([])], 0.01, monkeypatch) as metrics:
        assert [metrics.take() for _ in range(3)] == [{}] * 3
    over.set()
    assert time.monotonic() - began < 10


def test_closing_ends_the_thread() -> None:
    metrics = DeviceMetrics(CPU, None, NEVER_S)
    first_of(metrics)
    metrics.close()
    metrics._thread.join(60)
    assert not metrics._thread.is_alive()


def test_a_trials_utilisation_is_the_mean_over_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr("gaudi_tune.devices.device_metrics.time.monotonic", lambda: now)
    counts = TrialCounts(CPU)
    said = []
    for seconds, used in ((30.0, 70.0), (10.0, 10.0)):
        now += seconds
        sampled = {"gpu_3_utilization_percentage": used, "cpu_utilization": 99.0}
        said.append(counts.add_to_report({}, {PREFIX + name: value for name, value in sampled.items()}))
    assert said == [{names.UTILIZATION: 70.0}, {names.UTILIZATION: 55.0}]
    assert counts.add_to_report({"loss": 1.0}, {}) == {"loss": 1.0}  # nothing was sampled
