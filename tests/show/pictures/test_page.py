"""The live page: who may come to its server, and what a person sees and does there, in a browser."""

from __future__ import annotations

import http.client
import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import pytest
from PIL import Image
from selenium.webdriver import Chrome
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.ui import WebDriverWait

from gaudi_tune.base.errors import SweepError
from gaudi_tune.show.pictures import page as page_module
from gaudi_tune.show.pictures.catalogue import draw_pictures
from gaudi_tune.show.pictures.page import LivePage
from gaudi_tune.show.pictures.report import write_report
from gaudi_tune.sweep.record.events import Event, Reported, StopAsked, SweepBegan, SweepEnded
from gaudi_tune.sweep.record.sweep_state import SweepState
from tests.helpers.mlflow_pages import NOT_YET, chromium, resize
from tests.show.pictures.test_pictures import MIXED, NAMES, plan_of, state_of, view_of

PHONE = 390, 844
"""Width and height of its page, in pixels."""
SHOWN_WITHIN_S = 30.0
"""Far more than it takes on a quiet machine."""


class Sweep:
    """A sweep and its page, with this process in the place of Tune's event loop."""

    def __init__(self, folder: Path, curves: list[list[float] | None]) -> None:
        self.plan = replace(plan_of(folder), num_samples=len(curves))
        self.state: SweepState = state_of(curves, self.plan)
        self.wishes: list[Mapping[str, Any]] = []
        self.page = LivePage(self.plan, lambda: "http://127.0.0.1:5000/#/experiments/1  (a note)", self.ask)
        self.page.show(SweepBegan(), self.state)
        assert self.page.address is not None
        self.address = self.page.address

    def ask(self, wish: Mapping[str, Any]) -> Future[str]:
        answer: Future[str] = Future()
        self.wishes.append(wish)
        if wish["do"] == "add" and wish["trials"] != 10:
            answer.set_exception(SweepError(f"{wish['trials']} trials: give a number"))
        elif wish["do"] == "try":
            answer.set_exception(SweepError("lr=<b>7</b> is not in its range"))
        else:
            answer.set_result("as you wish")
        return answer

    def happens(self, event: Event) -> None:
        self.state.apply(event)
        self.page.show(event, self.state)

    def report(self, trial: int, step: int, value: float) -> None:
        config = self.state.trials[trial].config
        self.happens(Reported(trial=trial, step=step, point=(value,), metrics={"score": value}, config=config))

    def get(self, path: str, method: str = "GET", body: bytes | None = None, **headers: str) -> tuple[int, bytes]:
        """Ask the server for what is at a path, and return status and body."""
        connection = http.client.HTTPConnection("127.0.0.1", urlsplit(self.address).port or 0, timeout=30)
        connection.request(method, path, body, {"Host": urlsplit(self.address).netloc, **headers})
        answer = connection.getresponse()
        return answer.status, answer.read()

    def below(self, path: str) -> str:
        return f"/{self.page.token}/{path}"

    def close(self) -> None:
        assert self.page._server is not None
        self.page._server.close()


@contextmanager
def sweep_of(folder: Path, curves: list[list[float] | None]) -> Iterator[Sweep]:
    folder.mkdir(parents=True, exist_ok=True)
    sweep = Sweep(folder, curves)
    yield sweep
    sweep.close()


@pytest.fixture
def sweep(tmp_path: Path) -> Iterator[Sweep]:
    with sweep_of(tmp_path / "sweep", MIXED) as sweep:
        yield sweep


def test_without_the_token_nobody_comes_in(sweep: Sweep) -> None:
    paths = "/", "/plotly.js", "/{}x/", "/sweep", "/ask", "/{}", "/x/{}/sweep", "/%E9/", "/?token={}", "http://[/"
    for path in paths:
        for method in ("GET", "POST"):
            status, body = sweep.get(path.format(sweep.page.token), method, b'{"do": "end"}')
            assert (status, b"adamw" in body) == (403, False), path
    assert not sweep.wishes


def test_under_another_name_of_the_host_nobody_comes_in(sweep: Sweep) -> None:
    for host in ("evil.example", "evil.example:80", "127.0.0.1.evil.example", "[", ""):
        assert sweep.get(sweep.below("sweep"), Host=host)[0] == 403
        assert sweep.get(sweep.below("ask"), "POST", b'{"do": "end"}', Host=host)[0] == 403
    assert sweep.get(sweep.below("sweep"), Host="localhost:9000")[0] == 200  # through a tunnel
    assert not sweep.wishes


def test_before_the_first_trial_the_page_says_what_is_awaited(tmp_path: Path) -> None:
    with sweep_of(tmp_path / "sweep", []) as sweep:
        assert sweep.page.news(0)["head"]["state"] == "running, waiting for the first trial to begin"


def test_only_a_post_changes_something(sweep: Sweep) -> None:
    assert sweep.get(sweep.below("ask?do=end"))[0] == 404
    assert sweep.get(sweep.below("sweep"), "POST", b"{}")[0] == 404
    assert sweep.get(sweep.below("ask"), "POST", b"x" * 100_000)[0] == 413
    for body in (b"[]", b"nonsense"):
        assert "error" in json.loads(sweep.get(sweep.below("ask"), "POST", body)[1])
    assert not sweep.wishes
    assert json.loads(sweep.get(sweep.below("ask"), "POST", b'{"do": "end"}')[1]) == {"done": "as you wish"}
    assert sweep.wishes == [{"do": "end"}]


def test_an_unchanged_sweep_takes_few_bytes_and_a_report_that_of_its_trial(
    sweep: Sweep, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(page_module, "LOOK_EVERY_S", 0.0)
    monkeypatch.setattr(page_module, "MAX_TIME_SHARE", 1e9)
    first = json.loads(sweep.get(sweep.below("sweep?since=0"))[1])
    assert len(first["trials"]) == len(MIXED)
    same = sweep.get(sweep.below(f"sweep?since={first['version']}"))[1]
    assert json.loads(same) == {"version": first["version"]}
    sweep.report(5, 3, 0.3)
    sweep.page._next_view_at = 0.0
    sweep.page.tick(sweep.state)
    (changed,) = json.loads(sweep.get(sweep.below(f"sweep?since={first['version']}"))[1])["trials"]
    assert (changed["number"], changed["last"], changed["step"]) == (5, 0.3, 3)


def test_nothing_is_made_while_nobody_watches(sweep: Sweep) -> None:
    sweep.report(5, 3, 0.3)
    sweep.page._next_view_at = 0.0
    sweep.page.tick(sweep.state)
    assert sweep.page._version == 1


def test_pictures_of_the_page_are_those_of_the_report(sweep: Sweep) -> None:
    status, body = sweep.get(sweep.below("picture/learning_curves?since=0"))
    picture = json.loads(body)
    assert (status, picture["title"]) == (200, "Learning curves")
    assert len(picture["figure"]["data"]) > 2
    again = json.loads(sweep.get(sweep.below(f"picture/learning_curves?since={picture['version']}"))[1])
    assert again == {"version": picture["version"]}
    assert sweep.get(sweep.below("picture/passwd"))[0] == 404


def test_the_end_is_shown_and_the_server_ends(sweep: Sweep, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page_module, "LINGERS_S", 0.1)
    sweep.state.close()
    sweep.happens(SweepEnded(summary={}))
    assert json.loads(sweep.get(sweep.below("sweep"))[1])["head"]["running"] is False
    until = time.monotonic() + SHOWN_WITHIN_S
    with pytest.raises(OSError):  # noqa: PT011, PT012
        while time.monotonic() < until:
            sweep.get(sweep.below("sweep"))
            time.sleep(0.05)


# In a browser.


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chrome]:
    with chromium(tmp_path_factory.mktemp("profile")) as browser:
        yield browser


class Seen:
    """What a person sees, and does."""

    def __init__(self, browser: Chrome, sweep: Sweep) -> None:
        self.browser, self.sweep = browser, sweep

    def until(self, shown: Callable[[], Any]) -> Any:
        """Be Tune's event loop until something is shown, and return it."""

        def turn(_: Chrome) -> Any:
            self.sweep.page.tick(self.sweep.state)
            return shown()

        waiting = WebDriverWait(self.browser, SHOWN_WITHIN_S, poll_frequency=0.05, ignored_exceptions=NOT_YET)
        return waiting.until(turn)

    def row(self, number: int) -> list[str]:
        """The cells of a trial's row; none while there is no such row."""
        rows = "[...document.querySelectorAll('#trials tbody tr')]"
        script = f"return {rows}.map((row) => [...row.cells].map((cell) => cell.innerText))"
        return next((cells for cells in self.browser.execute_script(script) if cells[0] == str(number)), [])

    def numbers(self) -> list[int]:
        script = (
            "return [...document.querySelectorAll('#trials tbody tr')].map((row) => Number(row.cells[0].innerText))"
        )
        numbers: list[int] = self.browser.execute_script(script)
        return numbers

    def buttons(self, words: str) -> list[WebElement]:
        return self.browser.find_elements(By.XPATH, f"//button[normalize-space()='{words}']")

    def press(self, words: str) -> None:
        """Press a button once it is there and nothing lies over it: a page that is being drawn moves it."""

        def is_pressed() -> bool:
            buttons = self.buttons(words)
            for button in buttons[:1]:
                button.click()
            return bool(buttons)

        self.until(is_pressed)

    def confirm(self, words: str, question: str) -> None:
        """Press a button, and again what it asks; a slow machine's page may have forgotten the first press."""

        def is_confirmed() -> bool:
            asking = self.buttons(question)
            for button in (asking or self.buttons(words))[:1]:
                button.click()
            return bool(asking) and not self.buttons(question)  # forgotten just before the press, it asks again

        self.until(is_confirmed)

    def all_pictures(self) -> bool:
        script = "return document.querySelectorAll('#pictures .main-svg').length"
        return bool(self.browser.execute_script(script) >= len(NAMES))

    def fits(self) -> bool:
        """Whether neither the page nor a table is cut off."""
        script = """
            const tables = [...document.querySelectorAll("#trials, #space")];
            return document.documentElement.scrollWidth <= innerWidth
                && tables.every((table) => table.scrollWidth <= table.parentElement.clientWidth)"""
        return bool(self.browser.execute_script(script))

    def has_blocks(self) -> bool:
        """Whether each trial is a block of named values, because its columns do not fit."""
        return bool(self.browser.execute_script("return document.querySelector('#trials').className") == "blocks")

    def shown_fields(self) -> dict[str, tuple[str, str]]:
        """The kind of each field of the form for a configuration, and the words below it."""
        labels = self.browser.find_elements(By.CSS_SELECTOR, "#steer label:has([name])")
        controls = [label.find_element(By.CSS_SELECTOR, "input, select") for label in labels]
        words = [" ".join(small.text for small in label.find_elements(By.TAG_NAME, "small")) for label in labels]
        return {
            str(control.get_attribute("name")): (control.tag_name, text)
            for control, text in zip(controls, words, strict=True)
        }


@pytest.fixture
def seen(browser: Chrome, sweep: Sweep) -> Seen:
    resize(browser, 1400, 900)
    browser.get(sweep.address)
    seen = Seen(browser, sweep)
    seen.until(lambda: seen.row(len(MIXED)))
    return seen


@pytest.mark.processes
def test_a_person_sees_reports_as_they_come_and_pictures(seen: Seen, sweep: Sweep) -> None:
    assert seen.numbers()[0] == 5  # it runs
    sweep.report(5, 3, 0.9876)
    reported = time.monotonic()
    seen.until(lambda: "0.9876" in seen.row(5))
    print(f"visible after {time.monotonic() - reported:.1f} s")
    seen.until(seen.all_pictures)
    seen.until(lambda: "0.9876" in seen.browser.find_element(By.ID, "facts").text)
    assert not [entry for entry in seen.browser.get_log("browser") if entry["level"] == "SEVERE"]
    assert not seen.browser.find_elements(By.CSS_SELECTOR, "main b")  # "<b>adamw</b>" is text
    assert "<b>adamw</b>" in seen.browser.find_element(By.CSS_SELECTOR, "#trials tbody").text


@pytest.mark.processes
def test_a_person_stops_a_trial_adds_some_tries_one_and_ends_the_sweep(seen: Seen, sweep: Sweep) -> None:
    seen.press("stop")
    assert not sweep.wishes  # it asks first
    seen.confirm("stop", "stop trial 5?")
    seen.until(lambda: sweep.wishes)
    sweep.happens(StopAsked(request="stop trial-005", trial=5))
    seen.until(lambda: "running, stops" in seen.row(5))
    assert "stop trial-005" in seen.browser.find_element(By.ID, "steered").text
    count = seen.browser.find_element(By.ID, "more")
    seen.browser.execute_script("arguments[0].value = -1", count)
    seen.press("add")
    seen.until(lambda: seen.browser.find_element(By.ID, "add-answer").text == "-1 trials: give a number")
    seen.browser.execute_script("arguments[0].value = 10", count)
    seen.press("add")
    seen.until(lambda: "as you wish" in seen.browser.find_element(By.ID, "add-answer").text)
    seen.press("try next")
    seen.until(lambda: seen.browser.find_element(By.ID, "answer").text == "lr=<b>7</b> is not in its range")
    seen.confirm("end after the running trials", "end after the running trials?")
    seen.until(lambda: len(sweep.wishes) == 5)
    stop, _, add, one, end = sweep.wishes
    assert (stop, add, end) == ({"do": "stop", "trial": 5}, {"do": "add", "trials": 10}, {"do": "end"})
    fields = seen.shown_fields()
    assert set(one["config"]) == set(fields)
    assert fields["batch_size"][0] == fields["pooling"][0] == "select"
    assert fields["dropout"] == ("input", "0 to 0.5")


@pytest.mark.processes
def test_on_a_phone_nothing_is_cut_off_and_buttons_are_large(seen: Seen) -> None:
    seen.until(seen.all_pictures)
    for width, has_blocks in ((1280, False), (PHONE[0], True)):
        resize(seen.browser, width, PHONE[1])
        seen.until(lambda has_blocks=has_blocks: seen.fits() and seen.has_blocks() is has_blocks)  # type: ignore[misc]
    buttons = seen.browser.find_elements(By.CSS_SELECTOR, "#steer .act")
    assert len(buttons) == 4
    assert all(
        button.size["height"] >= 36 and button.rect["x"] + button.size["width"] <= PHONE[0] for button in buttons
    )


@pytest.mark.processes
def test_five_hundred_trials_are_compared(browser: Chrome, tmp_path: Path) -> None:
    curves: list[list[float] | None] = [[(number * 7919 % 500) / 500 + 0.001] for number in range(1, 501)]
    with sweep_of(tmp_path / "large", curves) as sweep:
        browser.get(sweep.address)
        seen = Seen(browser, sweep)
        seen.until(lambda: len(seen.numbers()) == 500)
        seen.press("best score")
        best_first = sorted(range(1, 501), key=lambda number: (number * 7919 % 500, number))
        seen.until(lambda: seen.numbers() == best_first)
        seen.press("best score")
        seen.until(lambda: seen.numbers()[:100] == best_first[::-1][:100])


@pytest.mark.processes
def test_no_other_page_frames_it(browser: Chrome, sweep: Sweep, tmp_path: Path) -> None:
    (tmp_path / "frame.html").write_text(f'<iframe src="{sweep.address}" width="100%" height="900"></iframe>')
    serve = partial(SimpleHTTPRequestHandler, directory=str(tmp_path))
    with ThreadingHTTPServer(("127.0.0.1", 0), serve) as other:
        threading.Thread(target=other.serve_forever, daemon=True).start()
        for place in (f"http://localhost:{other.server_port}", f"file://{tmp_path}"):
            browser.get(f"{place}/frame.html")
            browser.switch_to.frame(0)
            assert not browser.find_elements(By.CSS_SELECTOR, "main")
        other.shutdown()


@pytest.mark.processes
def test_the_report_shows_the_same_without_a_server(browser: Chrome, sweep: Sweep, tmp_path: Path) -> None:
    folder = tmp_path / "ended"
    folder.mkdir()
    view = view_of(MIXED, folder)
    write_report(view, draw_pictures(view), view.plan.report_file)
    resize(browser, 1400, 900)
    browser.get(f"file://{folder}/report.html")
    rows = browser.execute_script(
        "return [...document.querySelectorAll('#trials tbody tr')].map((row) => row.innerText)"
    )
    assert [row.split("\t")[:3] for row in rows][:3] == [
        ["5", "running", "0.2"], ["1", "finished, baseline", "0.75"], ["2", "stopped early", "0.1"]
    ]  # fmt: skip
    space = browser.execute_script("return [...document.querySelectorAll('#space tr')].map((row) => row.innerText)")
    assert space[0].split("\t") == ["name", "baseline", "best (trial 1)", "range"]
    assert space[2].startswith("dropout\t") and space[2].endswith("\t0 to 0.5")
    assert "9 trials, the baseline first, at most 4 epochs each" in browser.find_element(By.ID, "about").text
    seen = Seen(browser, sweep)
    seen.until(seen.all_pictures)
    assert not browser.find_elements(By.CSS_SELECTOR, ".act")


@pytest.mark.processes
def test_the_camera_over_a_picture_saves_it_as_a_file(browser: Chrome, sweep: Sweep, tmp_path: Path) -> None:
    view = view_of(MIXED, tmp_path)
    write_report(view, draw_pictures(view), view.plan.report_file)
    resize(browser, 1400, 900)
    for number, address in enumerate([view.plan.report_file.as_uri(), sweep.address]):
        saved = tmp_path / f"saved-{number}"
        browser.execute_cdp_cmd("Browser.setDownloadBehavior", {"behavior": "allow", "downloadPath": str(saved)})
        browser.get(address)
        seen = Seen(browser, sweep)
        seen.until(seen.all_pictures)
        browser.execute_script("document.querySelector('#learning_curves [data-title*=PNG i]').click()")
        seen.until((saved / "learning_curves.png").is_file)
        shown = np.asarray(Image.open(saved / "learning_curves.png").convert("L"))
        assert shown.shape[1] > 800
        assert np.ptp(shown) > 200  # something dark on white
