"""MLflow's pages as a person sees and uses them: Debian's Chromium without a window, driven by Selenium."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from selenium.common.exceptions import (
    ElementClickInterceptedException,
    ElementNotInteractableException,
    NoSuchElementException,
    StaleElementReferenceException,
)
from selenium.webdriver import Chrome, ChromeOptions, Keys
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.ui import WebDriverWait

CHROMIUM, DRIVER = Path("/usr/bin/chromium"), Path("/usr/bin/chromedriver")
SIZE = 1400, 900
"""Width and height of the page, in pixels."""
FLAGS = (
    "headless=new", "no-sandbox", "disable-gpu", "disable-quic", "no-first-run", "disable-background-networking",
    "disable-component-update", "disable-sync", "disable-dev-shm-usage",
    "blink-settings=primaryHoverType=2,availableHoverTypes=2,primaryPointerType=4,availablePointerTypes=4",
)  # fmt: skip
"""Without a screen, as root in a container, with nobody on the network but the server, and with a mouse."""
PHONE = 500
"""Pixels below which a page is shown as a phone shows it: its scroll bars take no room."""
WITHIN_S = 60
"""How long a page may take to show what is waited for."""
SCRIPT_WITHIN_S = 300
"""How long a script of a page may run."""

NOT_YET = (
    NoSuchElementException, StaleElementReferenceException, ElementNotInteractableException,
    ElementClickInterceptedException,
)  # fmt: skip
"""What Selenium raises of a page that is still being built."""

Found = TypeVar("Found")


@contextmanager
def chromium(profile: Path) -> Iterator[Chrome]:
    """A browser that has never been here before; ``profile`` is an empty folder.

    Raises:
        FileNotFoundError: Chromium or its driver is not installed.
    """
    for program in (CHROMIUM, DRIVER):
        if not program.exists():
            raise FileNotFoundError(f"{program} is missing: apt-get install chromium chromium-driver")
    options = ChromeOptions()
    options.binary_location = str(CHROMIUM)
    for flag in (*FLAGS, f"user-data-dir={profile}"):
        options.add_argument(f"--{flag}")
    os.environ["SE_OFFLINE"] = "true"  # Selenium would fetch a browser that it does not find
    with Chrome(options, Service(str(DRIVER))) as browser:
        resize(browser, *SIZE)
        browser.set_script_timeout(SCRIPT_WITHIN_S)
        yield browser


def resize(browser: Chrome, width: int, height: int) -> None:
    """Make the page so large, in pixels."""
    size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < PHONE}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)


class MlflowPages:
    """The pages of a server, and what a person does there."""

    def __init__(self, browser: Chrome, uri: str) -> None:
        self.browser, self.uri = browser, uri

    def wait(self, shown: Callable[[Chrome], Found], what: str, seconds: float = WITHIN_S) -> Found:
        """Return what ``shown`` gives once that is true; the page may rebuild itself meanwhile."""
        waiting = WebDriverWait(self.browser, seconds, poll_frequency=0.1, ignored_exceptions=NOT_YET)
        result: Any = waiting.until(shown, f"the page did not show {what}")
        return result

    def all(self, path: str) -> list[WebElement]:
        """Return the elements at an XPath."""
        return self.browser.find_elements(By.XPATH, path)

    def click(self, path: str) -> None:
        """Click what is at an XPath once it is there and nothing lies over it."""

        def clicked(browser: Chrome) -> bool:
            browser.find_element(By.XPATH, path).click()
            return True

        self.wait(clicked, path)

    @property
    def text(self) -> str:
        """What there is to read."""
        return self.browser.find_element(By.TAG_NAME, "body").text

    def sign_in(self, user: str, password: str) -> None:
        """Give name and password as in the browser's own dialog."""
        self.browser.get(self.uri.replace("http://", f"http://{user}:{password}@"))
        self.browser.get(self.uri)  # a page whose address has a password may not ask for more
        self.turn_to_training()

    def turn_to_training(self) -> None:
        """Turn to what MLflow has for training, from its page for language models."""
        self.click("//*[@data-component-id='mlflow.assistant.chat_panel.close']")
        self.click("//*[@role='button'][normalize-space()='Model training']")
        self.wait(lambda _: "Model registry" in self.text, "the pages for training")

    def open_experiment(self, name: str) -> None:
        """Open the table of an experiment's runs."""
        self.browser.get(f"{self.uri}/#/experiments")
        self.click(f"//a[@data-testid='experiment-list-item-link'][normalize-space()='{name}']")
        self.wait(lambda _: self.runs(), "the experiment's runs")

    def runs(self) -> list[str]:
        """Return the names of the runs that the table shows, from top to bottom."""
        links = self.all("//*[@role='row'][@row-id]//a[contains(@href, '/runs/')]")
        return [link.text for link in sorted(links, key=lambda link: link.location["y"])]

    def expand(self, sweep: str) -> None:
        """Show the trials of a sweep below it."""
        self.click(f"{_row(sweep)}//*[contains(@col-id, 'Run Name')]//button")

    def search(self, wanted: str) -> None:
        """Show the runs for which a filter holds."""
        path = "//*[@data-testid='runs-search-autocomplete']//input"
        box = self.wait(lambda browser: browser.find_element(By.XPATH, path), "the box for a filter")
        box.send_keys(Keys.CONTROL, "a")
        box.send_keys(wanted, Keys.ENTER)

    def columns(self, *names: str) -> None:
        """Show columns that the table leaves out, or leave out those that it shows."""
        self.click("//*[@data-testid='column-selection-dropdown'][normalize-space()='Columns']")
        for name in names:
            self.click(f"//*[@data-testid='column-selector-tree']//*[@title='{name}']")
        self.browser.switch_to.active_element.send_keys(Keys.ESCAPE)

    def group_by(self, name: str) -> None:
        """Group the runs of the table by a tag or a parameter."""
        self.click("//button[starts-with(normalize-space(), 'Group by')]")
        self.click(f"//*[starts-with(@role, 'menuitem')][normalize-space()='{name}']")
        self.wait(lambda _: self.all("//*[contains(text(), 'Group:')]"), f"groups by {name}")

    def groups(self, name: str) -> dict[str, str]:
        """Return what the table says in a column of each group, by the value that the runs of the group share."""
        cells = {}
        for title in self.all("//*[@role='row'][@row-id]//*[contains(text(), 'Group:')]"):
            row = title.find_element(By.XPATH, "ancestor::*[@role='row']").get_attribute("row-id")
            path = f"//*[@role='row'][@row-id='{row}']/*[contains(@col-id, '`{name}`')]"
            cells[title.text.removeprefix("Group:").strip()] = self.browser.find_element(By.XPATH, path).text
        return cells

    def column(self, name: str) -> dict[str, str]:
        """Return what the table says in a column, by the name of the run."""

        def said(_: Chrome) -> dict[str, str]:
            cells = {}
            for link in self.all("//*[@role='row'][@row-id]//a[contains(@href, '/runs/')]"):
                run = str(link.get_attribute("href")).rsplit("/", 1)[1]
                path = f"//*[@role='row'][@row-id='{run}']/*[contains(@col-id, '`{name}`')]"
                cells[link.text] = self.browser.find_element(By.XPATH, path).text
            return cells

        return self.wait(said, f"the column {name}")


def _row(run: str) -> str:
    """Return where a run is in the table."""
    return f"//*[@role='row'][@row-id][.//a[normalize-space()='{run}']]"
