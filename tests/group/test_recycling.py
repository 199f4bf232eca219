"""A worker group whose trials leave memory behind on its device is replaced, and so is one that is to have other
devices; on stand-in HPUs with 2 GiB."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.helpers.stand_in_hpu import output_of, ownerships, start

pytestmark = [pytest.mark.workers, pytest.mark.own_ray]

CODE = """
import json, os, sys, time
from contextlib import nullcontext
from pathlib import Path
import ray
from ray import tune
from ray.tune.utils.util import flatten_dict
from tests.helpers.loops import HABANAS, any_loop
from gaudi_tune.base import names
from gaudi_tune.devices.find import DEVICE_TYPES
from gaudi_tune.base.trial_place import Place
from gaudi_tune.group.warm_trainable import warm_trainable
from gaudi_tune.group.trainer import WorkerGroupSpec
from gaudi_tune.private.fork_server import ForkServer
from gaudi_tune.private.ray_core import lean_ray, logs_folder
from gaudi_tune.private.setup_worker import FORK_SERVER

hpu = DEVICE_TYPES["hpu"]
forks = ForkServer(hpu.imports, {**os.environ, **hpu.worker_environment()})  # as a sweep starts one
os.environ[FORK_SERVER] = forks.address
with lean_ray():
    ray.init("local", num_cpus=2, include_dashboard=False)
spec = WorkerGroupSpec(train_loop=any_loop, num_workers=1, device=hpu, storage=sys.argv[0] + "/storage")
sizes = (1, 0), (500, 1), (1, 0), (300, 0), (1, 0), (1, 0)
trials = [{"loop": "leaking", "megabytes": size, "frees": frees} for size, frees in sizes]

class Trainable(warm_trainable(spec=spec, settings={}, environment_of=lambda config: {})):
    def move_to(self, place):
        from gaudi_tune.group import worker_group
        book = worker_group.lower_numbers_booked
        def book_nothing(resource, numbers):
            worker_group.lower_numbers_booked = book
            return nullcontext()
        if place.numbers == (2, 3):  # lower ones become free when they have been booked
            worker_group.lower_numbers_booked = book_nothing
        super().move_to(place)

made = ray.remote(num_cpus=0)(Trainable).remote(trials[0])
results = [ray.get(made.train.remote())]
for number, trial in enumerate(trials[1:]):
    if number == 4:
        ray.get(made.save.remote(sys.argv[0] + "/fifth"))
    ray.get(made.reset.remote(trial))
    results.append(ray.get(made.train.remote()))
ray.get(made.reset.remote({"loop": "counting", "first": 1}))
ray.get(made.train.remote())
wider = []
for numbers in ((2, 3), (1, 2)):
    ray.get(made.move_to.remote(Place(2, numbers)))
    ray.get(made.save.remote(sys.argv[0] + "/saved"))
    wider.append(flatten_dict(ray.get(made.train.remote())))
ray.get(made.stop.remote())
log, until = Path(sys.argv[0], "acquisitions.jsonl"), time.monotonic() + 60
# Ray says that an actor has ended before its process does; and one of the processes of HOLD was killed.
while (noted := log.read_text()).count("released") < noted.count("acquired") - 1 and time.monotonic() < until:
    time.sleep(0.1)
print(*(file.read_text() for file in Path(logs_folder()).glob("worker-*")))
ray.shutdown()
forks.end()
said = {
    "pids": [result["worker_pid"] for result in results],
    "variables": [results[-1][name] for name in HABANAS],
    "wider": [[result["epoch"], result.get(names.WORKERS), names.LOST_SECONDS in result] for result in wider],
}
print(json.dumps(said))
"""


HOLD = """
import time, torch, habana_frameworks.torch
torch.ones(1, device="hpu")
print("have it", flush=True)
time.sleep(300)
"""


def test_a_group_whose_trials_leave_memory_behind_or_that_is_to_have_other_devices_is_replaced(tmp_path: Path) -> None:
    """It begins while the module is still being reset: the first workers do not get it."""
    of_four = {"HABANA_STAND_IN_MODULES": "4", "HABANA_STAND_IN_MEMORY_GB": "2", "HABANA_STAND_IN_BUSY_S": "12"}
    with start(HOLD, tmp_path, HLS_MODULE_ID="0", **of_four) as before:
        assert before.stdout is not None
        assert before.stdout.readline() == "have it\n"
        before.kill()
    code = CODE.replace("sys.argv[0]", repr(str(tmp_path)))
    printed = output_of(code, tmp_path, LD_PRELOAD="libtcmalloc.so.4", **of_four)
    said = json.loads(printed.splitlines()[-1])
    assert "Device acquire failed" in printed
    # What the second trial used is workspace by now. What the fourth leaves behind is measured when it has ended and
    # reported by the fifth, which is saved after that; the sixth gets new workers.
    pids = said["pids"]
    assert len(set(pids[:5])) == 1, printed
    assert pids[5] != pids[0]
    assert said["variables"] == ["", "0", "0"]
    assert "modules [1, 2] are not an aligned set of 2" in printed
    assert said["wider"] == [[2, 2, False], [3, None, True]], printed  # which goes on as it began
    owned = ownerships(tmp_path)
    assert [ownership.until is None for ownership in owned] == [True] + 9 * [False]
    modules = [sorted(ownership.module for ownership in owned[at : at + 2]) for at in (3, 5, 7)]
    assert modules == [[0, 1], [2, 3], [1, 2]]
    assert "Ray gave it hpu [0, 1] in place of [2, 3]" in printed
