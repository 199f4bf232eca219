"""``tune_script()`` tunes a script without a train function: every trial runs the whole script."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from gaudi_tune.base.errors import SweepError
from gaudi_tune.cli.calling_script import calling_script
from gaudi_tune.cli.command_line import main, print_error
from gaudi_tune.define.experiment import Experiment, as_name
from gaudi_tune.define.objective import Mode
from gaudi_tune.define.search_space import SearchSpace, SpaceFunction
from gaudi_tune.training.script_loop import config_of_trial, run_script


def tune_script(
    space: Mapping[str, Any] | SpaceFunction | SearchSpace, metric: str, mode: Mode | None = None, **fields: Any
) -> dict[str, Any]:
    """Tune the script that calls this function, and return the configuration of a trial.

    A script without a train function, such as ``train.py``, is tuned with ``python train.py --num-samples 8``::

        from gaudi_tune import report, tune, tune_script

        config = tune_script({"lr": tune.loguniform(1e-4, 1e-1)}, metric="loss")
        for epoch in range(1, config["epochs"] + 1):
            report({"loss": abs(config["lr"] - 0.01) + 1 / epoch})  # train your epoch here

    In the process that you start, it runs the sweep, as :func:`main` does, and exits: nothing below the call runs
    there. Every trial runs the whole script, and there the call returns the trial's configuration. The arguments are
    fields of an :class:`Experiment`.
    """
    config = config_of_trial()
    if config is not None:
        return config
    script = calling_script()
    if not script.get("__file__"):
        raise SweepError(
            "tune_script() needs a script to tune, and there is none here; in a notebook, give build_tuner a train loop"
        )
    path, package = Path(str(script["__file__"])), script.get("__package__")
    loop = partial(run_script, path=str(path.resolve()), source=path.read_bytes(), package=package)
    fields.setdefault("name", as_name(path.stem if path.stem != "__main__" else path.parent.name))
    try:
        experiment = Experiment(train_loop=loop, space=space, metric=metric, mode=mode, **fields)
    except SweepError as error:
        sys.exit(print_error(error, sys.argv))
    main(experiment, script.get("__doc__"))
    raise AssertionError("main() exits")
