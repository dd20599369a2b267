"""A person in front of the Prefect UI: a real Chromium without a window, driven by its own driver.

With ``DISPATCH_TESTS_PICTURES=FOLDER`` what the person sees is kept as the pictures of the documentation.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from support.debian import install

PICTURES = "DISPATCH_TESTS_PICTURES"
PACKAGES = ("chromium", "chromium-driver")
OPTIONS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    # It sees the loopback and nothing else, whatever the machine's network is.
    "--no-proxy-server",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1, EXCLUDE localhost",
    "--disable-dev-shm-usage",
    "--hide-scrollbars",
    "--lang=en",
)
_AT_REST = """
return document.readyState === "complete" && document.fonts.status === "loaded"
    && [...document.images].every((each) => each.complete)
"""
# Prefect's pages pulse and blur. Each frame of that is painted by the processor, all the time.
_STILL = """
document.addEventListener("DOMContentLoaded", () => {
    const still = document.createElement("style");
    still.textContent = "* {animation: none !important; transition: none !important; backdrop-filter: none !important}";
    document.head.append(still);
});
"""
WIDTH, HEIGHT = 1280, 1000
PATIENCE = 200.0
"""For what is to be seen. On a busy machine, all of it done by software, a page takes a minute."""
_CLOSES_SECONDS = 20.0
"""How long a dialog whose button was pressed may stay open before it is pressed again."""
_CALL_SECONDS = 60
"""After which one question to the browser is asked anew; less than its driver's own time-outs, which are errors."""


def why_not() -> str:
    """Why there can be no browser here; empty where there can. It is installed where that takes no asking."""
    install(*PACKAGES, unless=_programs)
    if _programs() is None:
        return f"Chromium and its driver are not installed; Debian's packages are {' and '.join(PACKAGES)}"
    return ""


def _programs() -> tuple[str, str] | None:
    browser, driver = shutil.which("chromium"), shutil.which("chromedriver")
    return (browser, driver) if browser is not None and driver is not None else None


@contextmanager
def opened(profile: Path) -> Iterator[Any]:
    """A browser with a profile of its own, which is nobody's."""
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    found = _programs()
    assert found is not None
    options = webdriver.ChromeOptions()
    options.binary_location = found[0]
    for option in (*OPTIONS, f"--user-data-dir={profile}", f"--window-size={WIDTH},{HEIGHT}"):
        options.add_argument(option)
    # What a page goes on to load is waited for by what is to be seen of it.
    options.page_load_strategy = "eager"
    driver = webdriver.Chrome(options=options, service=Service(found[1]))
    driver.set_page_load_timeout(_CALL_SECONDS)
    driver.set_script_timeout(_CALL_SECONDS)
    driver.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": _STILL})
    driver.execute_cdp_cmd("Emulation.setTimezoneOverride", {"timezoneId": "UTC"})
    try:
        yield driver
    finally:
        driver.quit()


class Person:
    """Somebody who looks at a server's UI, clicks and types.

    Args:
        driver: the browser.
        api: the server's API.
    """

    def __init__(self, driver: Any, api: str) -> None:
        self._driver = driver
        self._ui = api.removesuffix("/api")

    def open(self, path: str) -> None:
        """Go to a page."""

        def attempt() -> bool:
            self.resize()
            self._driver.get(f"{self._ui}{path}")
            return True

        self._until(attempt, f"the page {path}")

    def resize(self, width: int = WIDTH, height: int = HEIGHT) -> None:
        """Give the window another size, until another page is opened."""
        self._driver.set_window_size(width, height)

    def see(self, *texts: str) -> str:
        """Wait until the page shows texts. Returns all that it shows."""

        def look() -> str | None:
            shown: str = self._driver.execute_script("return document.body.innerText")
            return shown if all(text in shown for text in texts) else None

        return self._until(look, f"the page shows {texts}")

    def find(self, path: str) -> Any:
        """Wait for what an XPath names and a person can see."""

        def look() -> Any:
            return next((each for each in self._driver.find_elements("xpath", path) if each.is_displayed()), None)

        return self._until(look, path)

    def click(self, path: str) -> None:
        """Click on it, as soon as nothing is before it."""

        def attempt() -> bool:
            element = self.find(path)
            self._driver.execute_script("arguments[0].scrollIntoView({block: 'center'})", element)
            element.click()
            return True

        self._until(attempt, f"a click on {path}")

    def press(self, text: str, within: str = "") -> None:
        """Press a button, a link or a tab by its text."""
        own = f"normalize-space()='{text}'"
        self.click(f"{within}//*[{own} and not(.//*[{own}])]")

    def send(self, text: str, dialog: str) -> None:
        """Press a dialog's button, and again where it stays open: a form may not have taken in yet what was typed."""

        def gone() -> bool:
            return not any(each.is_displayed() for each in self._driver.find_elements("xpath", dialog))

        def attempt() -> bool:
            if gone():
                return True
            self.press(text, within=dialog)
            try:
                return bool(self._until(gone, f"{text} is done", _CLOSES_SECONDS))
            except AssertionError:
                return False

        self._until(attempt, f"{text} is done")

    def leave_by(self, text: str) -> None:
        """Press a button that leads to another page, and again where it did not: see :meth:`send`."""
        page = self._driver.current_url

        def attempt() -> bool:
            if self._driver.current_url != page:
                return True
            self.press(text)
            try:
                return bool(self._until(lambda: self._driver.current_url != page, f"{text} is done", _CLOSES_SECONDS))
            except AssertionError:
                return False

        self._until(attempt, f"{text} is done")

    def fill(self, label: str, value: str, within: str = "") -> None:
        """Type into the field of a form."""
        self.type_into(f"{within}{field_of(label)}//textarea", value)

    def type_into(self, path: str, value: str) -> None:
        """Type into what an XPath names, in the place of what is there."""

        def attempt() -> bool:
            field = self.find(path)
            field.clear()
            field.send_keys(value)
            return bool(field.get_attribute("value") == value)

        self._until(attempt, f"{value!r} in {path}")

    def choose(self, label: str, value: str, within: str = "") -> None:
        """Choose one of a field's values."""
        from selenium.webdriver.support.select import Select

        def attempt() -> bool:
            select = Select(self.find(f"{within}{field_of(label)}//select"))
            select.select_by_visible_text(value)
            return bool(select.first_selected_option.text == value)

        self._until(attempt, f"{value!r} chosen as {label}")

    def picture(self, name: str, of: str = "") -> None:
        """Keep what is seen, or one part of it, where pictures are asked for."""
        folder = os.environ.get(PICTURES)
        if not folder:
            return
        self._until(lambda: self._driver.execute_script(_AT_REST), "all is loaded")
        place = str(Path(folder) / f"{name}.png")
        seen = self.find(of) if of else self._driver
        assert seen.screenshot(place) if of else seen.save_screenshot(place)

    def _until(self, look: Callable[[], Any], what: str, patience: float = PATIENCE) -> Any:
        from selenium.common.exceptions import WebDriverException

        give_up, last = time.monotonic() + patience, ""
        while time.monotonic() < give_up:
            try:
                if found := look():
                    return found
            except WebDriverException as error:
                last = str(error).partition("\n")[0]
            time.sleep(0.2)
        shown = self._driver.execute_script("return document.body.innerText")
        raise AssertionError(f"not within {patience:g} s: {what}; {last}; {self._driver.current_url} shows:\n{shown}")


def field_of(label: str) -> str:
    """Where a field of a form is, by its label."""
    name = f"normalize-space()='{label}' or normalize-space()='{label} (Optional)'"
    return (
        f"//span[contains(@class, 'schema-form-property__label')][{name}]"
        "/ancestor::div[contains(concat(' ', @class, ' '), ' schema-form-property ')][1]"
    )
