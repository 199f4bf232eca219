"""A worker group whose trials leave memory behind on its device is replaced; on a stand-in HPU with 2 GiB."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.stand_in_hpu import output_of, ownerships, start

pytestmark = pytest.mark.workers

CODE = """
import json, sys
import ray
from ray import tune
from tests.loops import HABANAS, leaking
from trainables.runtime.devices.find import DEVICE_TYPES
from trainables.runtime.group.warm_trainable import warm_trainable
from trainables.runtime.group.worker_group import WorkerGroupSpec

ray.init("local", num_cpus=1, include_dashboard=False)
spec = WorkerGroupSpec(train_loop=leaking, num_workers=1, device=DEVICE_TYPES["hpu"], storage=sys.argv[0] + "/storage")
trials = [{"megabytes": size, "frees": frees} for size, frees in ((1, 0), (500, 1), (1, 0), (300, 0), (1, 0), (1, 0))]
trainable = warm_trainable(spec=spec, settings={}, environment_of=lambda config: {})
made = ray.remote(num_cpus=0)(trainable).remote(trials[0])
results = [ray.get(made.train.remote())]
for trial in trials[1:]:
    ray.get(made.reset.remote(trial))
    results.append(ray.get(made.train.remote()))
ray.get(made.stop.remote())
ray.shutdown()
print(json.dumps([[result["worker_pid"] for result in results], [results[-1][name] for name in HABANAS]]))
"""


HOLD = """
import time, torch, habana_frameworks.torch
torch.ones(1, device="hpu")
print("have it", flush=True)
time.sleep(300)
"""


def test_a_group_whose_trials_leave_memory_behind_is_replaced(tmp_path: Path) -> None:
    """It begins while the module is still being reset: the first workers do not get it."""
    of_one = {"HABANA_STAND_IN_MODULES": "1", "HABANA_STAND_IN_MEMORY_GB": "2", "HABANA_STAND_IN_BUSY_S": "12"}
    with start(HOLD, tmp_path, HLS_MODULE_ID="0", **of_one) as before:
        assert before.stdout is not None
        assert before.stdout.readline() == "have it\n"
        before.kill()
    code = CODE.replace("sys.argv[0]", repr(str(tmp_path)))
    printed = output_of(code, tmp_path, LD_PRELOAD="libtcmalloc.so.4", **of_one)
    *_, said = printed.splitlines()
    pids, variables = json.loads(said)
    assert "Device acquire failed" in printed
    # What the second trial used is workspace by now. What the fourth leaves behind is measured when it has ended and
    # reported by the fifth; the sixth gets new workers.
    assert len(set(pids[:5])) == 1, printed
    assert pids[5] != pids[0]
    assert [ownership.until is None for ownership in ownerships(tmp_path)] == [True, False, False]
    assert variables == ["", "0", "0"]
