"""Messages to a real HTTP server on this machine."""

from __future__ import annotations

import json
import logging
import time
from dataclasses import replace
from pathlib import Path

import pytest

from gaudi_tune import SweepError, SweepOptions
from gaudi_tune.define.sweep_plan import Plan
from gaudi_tune.plan.planner import make_plan
from gaudi_tune.show import notify
from gaudi_tune.show.notify import VARIABLE, Notify
from gaudi_tune.show.plan_text import plan_lines
from gaudi_tune.show.summary import summarise
from gaudi_tune.sweep.record.events import Ending, SweepEnded, SweepEnding
from gaudi_tune.sweep.record.sweep_file import write_sweep_file
from tests.helpers.fed_state import Fed
from tests.helpers.quadratic import QUADRATIC
from tests.helpers.webhook import SECRET, Webhook


@pytest.fixture
def plan(webhook: Webhook, storage: Path) -> Plan:
    return make_plan(QUADRATIC, SweepOptions(name="sweep", storage=storage, device="cpu", notify=webhook.address))


def end(plan: Plan, fed: Fed, *scores: float) -> None:
    """A sweep with a trial for each score, to its end."""
    assert plan.options.notify is not None
    for number, score in enumerate(scores, start=1):
        fed.trial(number, score, x=score)
    fed.state.close()
    view = Notify(plan, plan.options.notify)
    view.tick(fed.state)
    view.show(SweepEnded(summary=summarise(plan, fed.state, {})), fed.state)


def test_the_end_is_one_message(plan: Plan, webhook: Webhook, caplog: pytest.LogCaptureFixture) -> None:
    end(plan, Fed(trials=3), 0.5, 0.25, 0.75)
    (message,) = webhook.got
    assert message["event"] == "ended"
    assert message["text"] == message["content"] == "sweep ended after 0 s, best score 0.75 (trial 003): x=0.75"
    assert (message["sweep"], message["experiment"], message["metric"]) == ("sweep", "quadratic", "score")
    assert (message["value"], message["trial"], message["config"]["x"]) == (0.75, 3, 0.75)
    assert caplog.text == ""


def test_a_sweep_of_which_all_trials_failed_is_told_as_one(plan: Plan, webhook: Webhook) -> None:
    fed = Fed(trials=1)
    fed.trial(1, 0.5, outcome="failed")
    end(plan, fed)
    (last,) = webhook.got
    assert last["event"] == "failed"
    assert last["text"].startswith("sweep failed after 0 s (all 1 trial failed)")


@pytest.mark.parametrize(
    ("ending", "event", "says"),
    [
        (Ending("5 trials failed alike", 1), "failed", "sweep failed after 0 s (5 trials failed alike), best score"),
        (Ending("--target 0.4 is reached", 0), "ended", "sweep ended after 0 s (--target 0.4 is reached), best score"),
    ],
)
def test_a_failure_is_told(ending: Ending, event: str, says: str, plan: Plan, webhook: Webhook) -> None:
    fed = Fed(trials=3)
    fed.state.apply(SweepEnding(ending=ending))
    end(plan, fed, 0.5)
    (message,) = webhook.got
    assert message["event"] == event
    assert message["text"].startswith(says)


def test_a_sweep_without_a_result_has_failed(plan: Plan, webhook: Webhook) -> None:
    end(plan, Fed(trials=1))
    assert (webhook.got[0]["event"], webhook.got[0]["text"]) == ("failed", "sweep failed after 0 s")


@pytest.mark.parametrize("how", ["refuses", "redirects", "is gone", "is no address"])
def test_an_address_that_takes_nothing_is_logged_and_never_named(
    how: str, plan: Plan, webhook: Webhook, caplog: pytest.LogCaptureFixture
) -> None:
    if how == "refuses":
        webhook.status = 404
    elif how == "redirects":
        webhook.status = 301
    elif how == "is gone":
        webhook.server.server_close()
    else:
        wrong = f"http://127.0.0.1:1/{SECRET} and more\n"
        plan = replace(plan, options=replace(plan.options, notify=wrong))
    end(plan, Fed(trials=1), 0.5)
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert record.getMessage().startswith("--notify: could not post the end of the sweep (")
    assert "secret" not in caplog.text and "127.0.0.1" not in caplog.text


def test_a_server_that_does_not_answer_keeps_nobody(
    plan: Plan, webhook: Webhook, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(notify, "ANSWER_WITHIN_S", 0.2)
    webhook.answers.clear()
    began = time.monotonic()
    end(plan, Fed(trials=1), 0.5)
    assert time.monotonic() - began < 10
    assert "could not post the end of the sweep (ReadTimeout)" in caplog.text


def test_the_address_is_kept_nowhere(plan: Plan, webhook: Webhook, storage: Path) -> None:
    plan.folder.mkdir(parents=True)
    write_sweep_file(plan)
    fed = Fed(trials=1)
    fed.trial(1, 0.5)
    summary = summarise(plan, fed.state, {})
    written = [(plan.folder / "sweep.json").read_text(), repr(plan), plan.how_to_resume(), *plan_lines(plan)]
    assert "secret" not in " ".join([*written, json.dumps(summary, default=str)])
    # A sweep that goes on is given it again.
    again = make_plan(QUADRATIC, SweepOptions(resume="sweep", storage=storage))
    assert again.options.notify is None


def test_the_environment_may_give_it(storage: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "https://hooks.example.com/a")
    assert make_plan(QUADRATIC, SweepOptions(storage=storage)).options.notify == "https://hooks.example.com/a"
    with pytest.raises(SweepError, match=f"{VARIABLE}.: a webhook's address begins with https:// or http://") as wrong:
        make_plan(QUADRATIC, SweepOptions(storage=storage, notify=f"ftp://{SECRET}"))
    assert "secret" not in str(wrong.value)
