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
from gaudi_tune.sweep.record.events import Ending, SweepBegan, SweepEnded, SweepEnding
from gaudi_tune.sweep.record.sweep_file import write_sweep_file
from tests.helpers.fed_state import Fed
from tests.helpers.quadratic import QUADRATIC
from tests.helpers.webhook import SECRET, Webhook


@pytest.fixture
def plan(webhook: Webhook, storage: Path) -> Plan:
    return make_plan(QUADRATIC, SweepOptions(name="sweep", storage=storage, device="cpu", notify=webhook.address))


def run(plan: Plan, fed: Fed, *scores: float) -> Notify:
    """A sweep that has begun, with a trial for each score."""
    assert plan.options.notify is not None
    view = Notify(plan, plan.options.notify)
    view.show(SweepBegan(), fed.state)
    for number, score in enumerate(scores, start=1):
        fed.trial(number, score, x=score)
        view.tick(fed.state)
    return view


def end(view: Notify, plan: Plan, fed: Fed) -> None:
    fed.state.close()
    view.show(SweepEnded(summary=summarise(plan, fed.state, {})), fed.state)


def test_a_new_best_and_the_end_are_told(
    plan: Plan, webhook: Webhook, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(notify, "BEST_EVERY_S", 0.0)
    fed = Fed(trials=3)
    end(run(plan, fed, 0.5, 0.25, 0.75), plan, fed)
    assert [message["event"] for message in webhook.got] == ["best", "best", "ended"]
    assert [message["value"] for message in webhook.got] == [0.5, 0.75, 0.75]
    last = webhook.got[-1]
    assert last["text"] == last["content"] == "sweep has ended after 0 s, best score 0.75 (trial 003): x=0.75"
    assert (last["sweep"], last["experiment"], last["metric"], last["trial"]) == ("sweep", "quadratic", "score", 3)
    assert last["config"]["x"] == 0.75
    assert caplog.text == ""


def test_the_best_is_told_with_the_configuration_that_reached_it(
    plan: Plan, webhook: Webhook, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Population-based training changes the configuration of a trial that goes on."""
    monkeypatch.setattr(notify, "BEST_EVERY_S", 0.0)
    fed = Fed(trials=1)
    view = run(plan, fed)
    fed.trial(1, 0.5, outcome=None, x=0.1)
    fed.begin(1, x=0.9)
    fed.report(1, 2, 0.4)
    view.tick(fed.state)
    end(view, plan, fed)
    assert [message["config"]["x"] for message in webhook.got] == [0.1, 0.1]


def test_improvements_one_after_another_are_one_message(plan: Plan, webhook: Webhook) -> None:
    fed = Fed(trials=3)
    end(run(plan, fed, 0.5, 0.6, 0.7), plan, fed)
    assert [message["event"] for message in webhook.got] == ["ended"]


def test_a_sweep_of_which_all_trials_failed_is_told_as_one(plan: Plan, webhook: Webhook) -> None:
    fed = Fed(trials=1)
    view = run(plan, fed)
    fed.trial(1, 0.5, outcome="failed")
    end(view, plan, fed)
    (last,) = webhook.got
    assert last["event"] == "failed"
    assert last["text"].startswith("sweep has failed (all 1 trial failed) after")


@pytest.mark.parametrize(
    ("ending", "event", "says"),
    [
        (
            Ending("5 trials failed alike", 1),
            "failed",
            "sweep ended early (5 trials failed alike) after",
        ),
        (Ending("--target 0.4 is reached", 0), "ended", "sweep ended early (--target 0.4 is reached) after"),
    ],
)
def test_a_failure_is_told(ending: Ending, event: str, says: str, plan: Plan, webhook: Webhook) -> None:
    fed = Fed(trials=3)
    view = run(plan, fed, 0.5)
    fed.state.apply(SweepEnding(ending=ending))
    end(view, plan, fed)
    (message,) = webhook.got
    assert message["event"] == event
    assert message["text"].startswith(says)


def test_a_sweep_without_a_result_has_failed(plan: Plan, webhook: Webhook) -> None:
    fed = Fed(trials=1)
    end(run(plan, fed), plan, fed)
    assert (webhook.got[0]["event"], webhook.got[0]["text"]) == (
        "failed",
        "sweep ended early (interrupted) after 0 s, without a result",
    )


@pytest.mark.parametrize("how", ["refuses", "redirects", "is gone", "is no address"])
def test_an_address_that_takes_nothing_is_logged_once_and_never_named(
    how: str, plan: Plan, webhook: Webhook, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(notify, "BEST_EVERY_S", 0.0)
    if how == "refuses":
        webhook.status = 404
    elif how == "redirects":
        webhook.status = 301
    elif how == "is gone":
        webhook.server.server_close()
    else:
        wrong = f"http://127.0.0.1:1/{SECRET} and more\n"
        plan = replace(plan, options=replace(plan.options, notify=wrong))
    fed = Fed(trials=2)
    end(run(plan, fed, 0.5, 0.75), plan, fed)
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert record.getMessage().startswith("--notify: could not post a message (")
    assert "secret" not in caplog.text and "127.0.0.1" not in caplog.text


def test_a_server_that_does_not_answer_keeps_nobody(
    plan: Plan, webhook: Webhook, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for name, seconds in (("BEST_EVERY_S", 0.0), ("ANSWER_WITHIN_S", 30.0), ("WAIT_AT_END_S", 0.5)):
        monkeypatch.setattr(notify, name, seconds)
    webhook.answers.clear()
    fed = Fed(trials=2)
    began = time.monotonic()
    view = run(plan, fed, 0.5, 0.75)
    assert time.monotonic() - began < 10, "it does not wait"
    end(view, plan, fed)
    assert time.monotonic() - began < 15, "it does not wait for long"


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
    with pytest.raises(SweepError, match=f"{VARIABLE}.: an address begins with https:// or http://") as wrong:
        make_plan(QUADRATIC, SweepOptions(storage=storage, notify=f"ftp://{SECRET}"))
    assert "secret" not in str(wrong.value)
