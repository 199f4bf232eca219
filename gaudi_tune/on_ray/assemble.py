"""The parts of a sweep, made in the order in which they need each other: each gets what it needs when it is made."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import ray

from gaudi_tune.base.process import in_notebook
from gaudi_tune.define.sweep_plan import Plan
from gaudi_tune.on_ray.announcer import Announcer
from gaudi_tune.on_ray.checkpoint_cleanup import CheckpointCleanup
from gaudi_tune.on_ray.conclusion import Conclusion
from gaudi_tune.on_ray.early_end import EarlyEnd
from gaudi_tune.on_ray.exit_without_ray import Leaving
from gaudi_tune.on_ray.given.ray_scheduler import RayScheduler, ray_scheduler_of
from gaudi_tune.on_ray.given.ray_search import source_of
from gaudi_tune.on_ray.given.user_callback import UserCallback
from gaudi_tune.on_ray.given.user_stop import UserStop
from gaudi_tune.on_ray.reports import Reports
from gaudi_tune.on_ray.scheduler import SweepScheduler
from gaudi_tune.on_ray.state_on_disk import StateOnDisk
from gaudi_tune.on_ray.steering import Steering
from gaudi_tune.on_ray.sweep_run import SweepRun
from gaudi_tune.on_ray.tune_searcher import TuneSearcher
from gaudi_tune.plan.planner import make_proposer
from gaudi_tune.show.notify import Notify
from gaudi_tune.show.pictures.notebook_cell import ShowInCell
from gaudi_tune.show.pictures.page import LivePage
from gaudi_tune.show.pictures.report import DrawPictures
from gaudi_tune.show.progress import ShowProgress
from gaudi_tune.show.trackers.tracker import Tracker
from gaudi_tune.show.view import View
from gaudi_tune.storage.mirror import Mirror
from gaudi_tune.storage.remote import address_below
from gaudi_tune.sweep.policies.growth import Growth
from gaudi_tune.sweep.policies.schedulers.factory import scheduler_kind
from gaudi_tune.sweep.policies.stopping import StoppingRules
from gaudi_tune.sweep.record.device_time import DeviceTime
from gaudi_tune.sweep.record.sweep_state import SweepState


def assemble(plan: Plan, trackers: Sequence[Tracker]) -> SweepRun:
    """Return the parts of a sweep, put together. Nothing is opened or started before :meth:`SweepRun.setup`."""
    options, objects = plan.options, plan.objects
    # The record, and what shows it.
    state = _make_state(plan)
    announcer = Announcer(state, trackers)
    early_end = EarlyEnd(state, objects, announcer.tell)

    # What proposes the trials. Steering comes before the searcher, which ends the search through it.
    proposer = make_proposer(plan, early_end.take_search_error)
    steering = Steering(plan, state, proposer, announcer.tell)

    # What decides about them. The scheduler comes before the searcher, which asks it how many trials wait.
    kind = scheduler_kind("fifo" if options.baseline_only else options.scheduler)
    policy = kind(plan.budget, plan.objectives, plan.experiment.search_space)
    growth = Growth(plan, state)
    stopping, user_stop = StoppingRules(options), UserStop(objects.stop)
    reports = Reports(plan, state, proposer, announcer, early_end, growth, stopping, user_stop)
    ray_scheduler = ray_scheduler_of(plan, policy)
    make_scheduler = SweepScheduler if ray_scheduler is None else partial(RayScheduler, ray_scheduler, plan)
    scheduler = make_scheduler(
        policy, state, plan.groups, reported=reports.handle, trials_wait_for_devices=growth.trials_wait_for_devices
    )
    searcher = TuneSearcher(
        proposer,
        state,
        options.seed,
        source=source_of(plan),
        count_waiting=scheduler.count_waiting,
        end_search=steering.end_search,
        on_error=early_end.take_search_error,
    )

    # What is kept, and how the sweep ends: the summary needs all of the above.
    stop = {} if objects.stop is None else objects.stop
    user_callbacks = [
        UserCallback(callback, stop=stop, num_samples=plan.num_samples, total_num_samples=plan.num_samples)
        for callback in objects.callbacks
    ]
    on_disk = StateOnDisk(
        plan.folder, state, scheduler, proposer, user_callbacks, announcer.flush_trackers, resumed=plan.resumed
    )
    mirror = Mirror(plan.folder, address_below(plan.address, plan.name)) if plan.address else None
    conclusion = Conclusion(plan, announcer, steering, on_disk, mirror)

    page = LivePage(plan, announcer.tracker_address, steering.ask)
    announcer.views += _make_views(plan, announcer, page)
    return SweepRun(
        plan=plan,
        state=state,
        announcer=announcer,
        early_end=early_end,
        steering=steering,
        growth=growth,
        stopping=stopping,
        user_stop=user_stop,
        scheduler=scheduler,
        searcher=searcher,
        user_callbacks=user_callbacks,
        on_disk=on_disk,
        mirror=mirror,
        conclusion=conclusion,
        leaving=Leaving(plan, state, early_end, conclusion.write),
        cleanup=CheckpointCleanup(plan, state, scheduler),
    )


def _make_state(plan: Plan) -> SweepState:
    return SweepState(
        plan.objectives,
        plan.budget,
        plan.num_samples,
        DeviceTime(plan.devices, _node_address, plan.options.workers_per_trial, plan.trials_per_device),
        plan.confirm,
        plan.seeds,
        plan.most_seeds,
        has_baseline=bool(plan.experiment.baseline),
    )


def _node_address(node_id: str) -> str:
    """Return the address of the node with Ray's id ``node_id``, or the beginning of the id if Ray does not know it."""
    addresses = {node["NodeID"]: str(node["NodeManagerAddress"]) for node in ray.nodes()}
    return addresses.get(node_id, node_id[:8])


def _make_views(plan: Plan, announcer: Announcer, page: LivePage) -> list[View]:
    """Return the views in the order in which they are shown an event."""
    views: list[View] = [page, ShowProgress(plan), DrawPictures(plan, announcer.tracker_address)]
    if in_notebook():
        views.append(ShowInCell(page))
    if plan.options.notify is not None:
        views.append(Notify(plan, plan.options.notify))
    return views
