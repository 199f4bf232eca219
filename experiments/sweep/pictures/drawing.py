"""Drawing a sweep while it runs: the pictures and the report, by a thread of its own."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from ray import tune
from ray.tune.experiment import Trial

from experiments.sweep.pictures.sweep_view import SweepView

if TYPE_CHECKING:
    from experiments.sweep.ledger import Ledger
    from experiments.sweep.plan import Plan
    from experiments.sweep.search.searcher import StudySearcher
    from experiments.sweep.summary import WriteSummary
    from experiments.sweep.tracking.mlflow_callback import MlflowTracking

logger = logging.getLogger(__name__)

DRAW_EVERY_S = 60.0
"""How often a running sweep is drawn at most."""
SHARE_OF_TIME = 0.05
"""How much of a core drawing takes at most: with a thousand trials the turns are longer."""


class DrawPictures(tune.Callback):
    """Draws the sweep every minute in which something was reported, and once more when it ends.

    Tune's event loop only gathers what is to be drawn (milliseconds). A drawing that fails is said, and ends nothing.
    """

    def __init__(
        self, plan: Plan, searcher: StudySearcher, ledger: Ledger, summary: WriteSummary, tracking: MlflowTracking
    ) -> None:
        self._plan, self._searcher, self._ledger = plan, searcher, ledger
        self._summary, self._tracking = summary, tracking
        self._reported = False
        self._not_before = 0.0  # of the monotonic clock
        self._thread: threading.Thread | None = None

    def on_trial_result(
        self, iteration: int, trials: list[Trial], trial: Trial, result: Mapping[str, Any], **info: Any
    ) -> None:
        """Note that there is something new."""
        self._reported = True

    def on_step_end(self, iteration: int, trials: list[Trial], **info: Any) -> None:
        """Begin to draw, if it is time and the last drawing is done."""
        drawing = self._thread is not None and self._thread.is_alive()
        if drawing or not self._reported or time.monotonic() < self._not_before:
            return
        self._reported = False
        with errors_are_said():
            view = self._view(trials, running=True)
            self._thread = threading.Thread(target=self._draw, args=(view,), name="pictures", daemon=True)
            self._thread.start()

    def on_experiment_end(self, trials: list[Trial], **info: Any) -> None:
        """Draw how it ended."""
        if self._thread is not None:
            self._thread.join()
        with errors_are_said():
            self._draw(self._view(trials, running=False))

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_thread": None}

    def _view(self, trials: list[Trial], *, running: bool) -> SweepView:
        ledger = self._ledger.up_to_now() if running else self._ledger
        return SweepView(
            plan=self._plan,
            running=running,
            recorded=self._searcher.trials(),
            ledger=ledger,
            summary=self._summary.so_far(trials, ledger),
        )

    def _draw(self, view: SweepView) -> None:
        began, worked = time.monotonic(), time.thread_time()
        with errors_are_said():
            # Not above: plotly and Optuna's pictures take 2 s and 100 MB, which --help and --dry-run do not need.
            from experiments.sweep.pictures.picture_files import draw_sweep

            self._tracking.show(draw_sweep(view), last=not view.running)
        worked = time.thread_time() - worked  # and not what other work on these cores took
        self._not_before = began + max(DRAW_EVERY_S, worked / SHARE_OF_TIME)


@contextmanager
def errors_are_said() -> Iterator[None]:
    """Log an error instead of raising it: a picture is not worth a sweep."""
    try:
        yield
    except Exception:
        logger.exception("the sweep could not be drawn")
