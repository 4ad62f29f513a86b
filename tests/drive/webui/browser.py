"""A headless Chromium, driven by its DevTools protocol: only the functions that tests of a page need."""

from __future__ import annotations

import base64
import json
import shutil
import subprocess
import time
from typing import TYPE_CHECKING, Any

import websocket

if TYPE_CHECKING:
    from pathlib import Path

PROGRAMS = ("chromium", "chromium-browser", "google-chrome")
FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-dev-shm-usage"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync", "--remote-debugging-port=0"),
    *("--remote-allow-origins=*", "--window-size=1400,900", "--hide-scrollbars"),
)

PATIENCE_S = 120.0
"""Time limit for what takes a second or two on an idle machine."""


def program() -> str | None:
    """Return the path of Chromium, None if this machine has none."""
    return next(filter(None, map(shutil.which, PROGRAMS)), None)


class Browser:
    """One tab. Clicks and keys are real input events; `ask` evaluates JavaScript and gives its value."""

    def __init__(self, profile: Path, *, dark: bool = False) -> None:
        self._number = 0
        self.errors: list[str] = []
        """What the pages complained about on the console."""
        self._child = subprocess.Popen(
            [program() or "chromium", *FLAGS, f"--user-data-dir={profile}", "about:blank"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        port_file = profile / "DevToolsActivePort"
        wait_until(lambda: port_file.exists() and port_file.read_text().count("\n") >= 1, "Chromium to start")
        port, path = port_file.read_text().split("\n")[:2]
        self._socket = websocket.create_connection(f"ws://127.0.0.1:{port}{path}", timeout=PATIENCE_S)
        target = self._call("Target.createTarget", url="about:blank")["targetId"]
        self._session: str | None = None
        self._session = self._call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self._call(f"{domain}.enable")
        scheme = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        self._call("Emulation.setEmulatedMedia", features=scheme)
        self.resize(1400, 900)

    def resize(self, width: int, height: int) -> None:
        """Set the size of the page's window in pixels."""
        self._call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)

    def _call(self, method: str, **parameters: Any) -> dict[str, Any]:
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if getattr(self, "_session", None):
            message["sessionId"] = self._session
        self._socket.send(json.dumps(message))
        while True:
            answer = json.loads(self._socket.recv())
            if answer.get("id") == self._number:
                assert "error" not in answer, f"{method}: {answer['error']}"
                return dict(answer["result"])
            self._note(answer)

    def _note(self, event: dict[str, Any]) -> None:
        if event.get("method") == "Runtime.exceptionThrown":
            details = event["params"]["exceptionDetails"]
            self.errors.append(str(details.get("exception", {}).get("description", details["text"])))
        if event.get("method") == "Log.entryAdded" and event["params"]["entry"]["level"] == "error":
            entry = event["params"]["entry"]
            if not str(entry.get("url")).endswith("/favicon.ico"):  # asked for by the browser, not by a page
                self.errors.append(f"{entry['text']} {entry.get('url', '')}")

    def go(self, url: str) -> None:
        """Open a page and wait until it is loaded."""
        self._call("Page.navigate", url=url)
        time.sleep(0.1)
        self.until("document.readyState === 'complete'", "the page to load")

    def ask(self, script: str) -> Any:
        """Return the value of a JavaScript expression; promises are awaited."""
        found = self._call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in found, f"{script}: {found['exceptionDetails']}"
        return found["result"].get("value")

    def until(self, script: str, what: str, timeout_s: float = PATIENCE_S) -> Any:
        """Wait until an expression is true, and return its value."""
        return wait_until(lambda: self.ask(script), what, timeout_s)

    def click(self, element: str) -> None:
        """Click in the middle of the element that an expression finds, as a mouse does."""
        self.until(f"Boolean({element})", f"{element} to be there")
        self.ask(f"({element}).scrollIntoView({{block: 'center'}})")
        middle = f"(r => [r.x + r.width / 2, r.y + r.height / 2])(({element}).getBoundingClientRect())"
        box = before = None
        while box is None or box != before:  # what slides open moves what is below it
            before, box = box, self.ask(middle)
            time.sleep(0.1)
        for kind in ("mousePressed", "mouseReleased"):
            self._call("Input.dispatchMouseEvent", type=kind, x=box[0], y=box[1], button="left", clickCount=1)

    def mouse(self, kind: str, x: float, y: float, clicks: int = 0) -> None:
        """Send a mouse event (`mouseMoved`, `mousePressed`, `mouseReleased`) at a place of the window."""
        button = "none" if kind == "mouseMoved" and not clicks else "left"
        held = int(kind == "mouseMoved" and clicks > 0)
        self._call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button=button, buttons=held, clickCount=clicks)

    def swipe(self, *places: tuple[float, float]) -> None:
        """Move a finger over places of the window, as on a telephone; over one place it taps."""
        self._call("Emulation.setTouchEmulationEnabled", enabled=True)
        for number, (x, y) in enumerate(places):
            self._call(
                "Input.dispatchTouchEvent", type="touchMove" if number else "touchStart", touchPoints=[{"x": x, "y": y}]
            )
        self._call("Input.dispatchTouchEvent", type="touchEnd", touchPoints=[])

    def print_preview(self, *, on: bool) -> None:
        """Show the page as it is printed, or as on screen."""
        self._call("Emulation.setEmulatedMedia", media="print" if on else "screen")

    def without_scripts(self) -> None:
        """Run no script of the pages that are opened from now on."""
        self._call("Emulation.setScriptExecutionDisabled", value=True)

    def type_into(self, selector: str, text: str) -> None:
        """Replace the text of an input field."""
        self.click(f"document.querySelector({json.dumps(selector)})")
        self.ask(f"document.querySelector({json.dumps(selector)}).select()")
        self.write(text)

    def write(self, text: str) -> None:
        """Type a text where the cursor is."""
        self._call("Input.insertText", text=text)

    def download_to(self, directory: Path) -> None:
        """Keep what is downloaded there."""
        session, self._session = self._session, None  # this one is the browser's, not the tab's
        self._call("Browser.setDownloadBehavior", behavior="allow", downloadPath=str(directory))
        self._session = session

    def shoot(self, path: Path) -> None:
        """Save the visible page as a PNG."""
        path.write_bytes(base64.b64decode(self._call("Page.captureScreenshot", format="png")["data"]))

    def close(self) -> None:
        """End the browser, which then removes its directory of sockets."""
        self._socket.send(json.dumps({"id": 0, "method": "Browser.close"}))
        try:
            self._child.wait(60)
        except subprocess.TimeoutExpired:
            self._child.kill()
            self._child.wait()
        self._socket.close()


def wait_until(condition: Any, what: str, timeout_s: float = PATIENCE_S) -> Any:
    """Poll five times a second until the condition is true."""
    end = time.monotonic() + timeout_s
    while not (found := condition()):
        assert time.monotonic() < end, f"waited {timeout_s:.0f} s for {what}"
        time.sleep(0.2)
    return found
