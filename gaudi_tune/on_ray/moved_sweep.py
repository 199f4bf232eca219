"""A resumed sweep that goes on in another folder than it began in, or under another name."""

from __future__ import annotations

import shutil

from gaudi_tune.base.errors import SweepError
from gaudi_tune.base.files import DELIVERED_FILE, GROUPS_FOLDER, LOCK_FILE, OWNER_FILE, SWEEP_FILE
from gaudi_tune.define.sweep_plan import Plan
from gaudi_tune.on_ray.tune_files import SET_ASIDE
from gaudi_tune.show.trackers.outbox import begin_again, tracked_at
from gaudi_tune.sweep.record.lock import is_running
from gaudi_tune.sweep.record.sweep_file import read_sweep_file

NOT_COPIED = (SWEEP_FILE, LOCK_FILE, OWNER_FILE, GROUPS_FOLDER, SET_ASIDE.format("*"))
"""What the folder of a sweep that continues another does not have from it. Its own file is written last: a folder
without it counts as no sweep."""


def take_over(plan: Plan) -> None:
    """Make the folder of a resumed sweep its own: copy it if it is elsewhere, and under another name, or in another
    tracking store, let the sweep have new runs.

    The outbox has all that MLflow was told.

    Raises:
        SweepError: The sweep runs, or its folder cannot be copied. What was copied is removed.
    """
    source = plan.stored_folder
    is_renamed = read_sweep_file(source, may_be_renamed=True).options["name"] != plan.name
    if source != plan.folder:
        _copy(plan)
    if is_renamed or tracked_at(plan.folder) not in (None, plan.tracking_uri):
        (plan.folder / DELIVERED_FILE).unlink(missing_ok=True)
        begin_again(plan.folder, plan.name, plan.tracking_uri, plan.experiment.name, plan.origin)


def _copy(plan: Plan) -> None:
    source = plan.stored_folder
    if is_running(source):
        raise SweepError(f"--resume {source}: this sweep is running; wait for it, or end it first")
    try:
        shutil.copytree(
            source, plan.folder, symlinks=True, ignore=shutil.ignore_patterns(*NOT_COPIED), dirs_exist_ok=True
        )
    except OSError as error:
        shutil.rmtree(plan.folder, ignore_errors=True)
        raise SweepError(
            f"--resume {source}: it cannot be copied to {plan.folder} ({error}); make room, or give another --storage"
        ) from error
