"""What a user of one device per trial would write in plain Ray Tune: a function trainable, with ``reuse_actors=True``.

    python tests/tools/benchmarks/plain_tune.py CONFIGS.json --at-a-time 2 \\
        --loop tests.tools.benchmarks.stamped_bert:train_loop

CONFIGS.json is a list of configurations, one for each trial. Nothing is logged, saved or resumed. The loop is one of
this project, whose reports go to ``tune.report``. Prints one JSON object: ``sweep_s``, from the call of ``fit`` to its
return, and ``trials``, the last report of each.
"""

from __future__ import annotations

import argparse
import json
import os
import pkgutil
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")  # as Ray has it for a trial of one CPU

from ray import tune

ROOT = Path(__file__).resolve().parents[3]
sys.path[0] = str(ROOT)
from gaudi_tune.training.session import SaveFunction, open_session


class TuneSession:
    """Sends the reports of a loop to Tune, and saves nothing."""

    folder = Path()

    def report(self, metrics: Mapping[str, Any], save: SaveFunction | None) -> None:
        tune.report(dict(metrics))

    def save_if_asked(self, save: SaveFunction) -> None:
        pass

    def get_checkpoint(self) -> None:
        return None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("configs", type=Path)
    parser.add_argument("--loop", default="tests.tools.benchmarks.stamped_bert:train_loop")
    parser.add_argument("--at-a-time", type=int, default=2)
    parser.add_argument("--gpus", type=int, default=0, help="of each trial")
    given = parser.parse_args()
    configs, loop = json.loads(given.configs.read_text()), given.loop

    def trainable(config: dict[str, Any]) -> None:
        with open_session(TuneSession()):
            pkgutil.resolve_name(loop)(configs[config["number"]])

    os.environ["PYTHONPATH"] = f"{ROOT}:{os.environ.get('PYTHONPATH', '')}"
    tuner = tune.Tuner(
        tune.with_resources(trainable, {"cpu": 1, "gpu": given.gpus}),
        tune_config=tune.TuneConfig(max_concurrent_trials=given.at_a_time, reuse_actors=True),
        run_config=tune.RunConfig(name="tune", storage_path=str(given.configs.parent / "plain"), verbose=0),
        param_space={"number": tune.grid_search(list(range(len(configs))))},
    )
    began = time.time()
    results = tuner.fit()
    sweep_s = time.time() - began
    assert not results.errors, results.errors
    print(json.dumps({"sweep_s": round(sweep_s, 2), "trials": [dict(result.metrics or {}) for result in results]}))


if __name__ == "__main__":
    main()
