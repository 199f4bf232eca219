"""A worker group whose trials leave memory behind on its device is replaced; on a stand-in HPU with 2 GiB."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.stand_in_hpu import output_of, ownerships

pytestmark = pytest.mark.workers

CODE = """
import json, sys
import ray
from ray import tune
from tests.loops import leaking
from trainables.runtime.devices.find import DEVICE_TYPES
from trainables.runtime.group.warm_trainable import WarmTrainable
from trainables.runtime.group.worker_group import WorkerGroupSpec

ray.init("local", num_cpus=1, include_dashboard=False, log_to_driver=False)
spec = WorkerGroupSpec(train_loop=leaking, num_workers=1, device=DEVICE_TYPES["hpu"], storage=sys.argv[0] + "/storage")
trials = [{"megabytes": size} for size in (1, 1, 300, 1, 1)]
made = tune.with_parameters(WarmTrainable, spec=spec, settings={}, environment_of=lambda config: {})(trials[0])
pids = [made.train()["worker_pid"]]
for trial in trials[1:]:
    made.reset(trial)
    pids.append(made.train()["worker_pid"])
made.stop()
ray.shutdown()
print(json.dumps(pids))
"""


def test_a_group_whose_trials_leave_memory_behind_is_replaced(tmp_path: Path) -> None:
    code = CODE.replace("sys.argv[0]", repr(str(tmp_path)))
    printed = output_of(code, tmp_path, HABANA_STAND_IN_MODULES="1", HABANA_STAND_IN_MEMORY_GB="2")
    pids = json.loads(printed.splitlines()[-1])
    # What the third trial leaves behind is measured when it has ended and reported by the fourth; the fifth gets new
    # workers.
    assert pids[0] == pids[1] == pids[2] == pids[3] != pids[4], printed
    assert [ownership.until is None for ownership in ownerships(tmp_path)] == [False, False]
