"""A real browser, told what to do by the DevTools protocol over a pair of pipes."""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
PROGRAM = next((found for name in NAMES if (found := shutil.which(name))), None)
_PATIENCE = 120.0


class Page:
    """A tab.

    errors: what its console was told of errors, and exceptions that nobody caught.
    """

    def __init__(self, write: int, read: int) -> None:
        self._write, self._read = write, read
        self._buffer = b""
        self._number = 0
        self._session: str | None = None
        self.errors: list[str] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        attached = self.call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **params: Any) -> Any:
        """The result of a method of the protocol."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": params}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        until = time.monotonic() + _PATIENCE
        while True:
            found = self._message(until)
            if found.get("id") == self._number:
                assert "error" not in found, found["error"]
                return found["result"]

    def _message(self, until: float) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._read], [], [], until - time.monotonic())
            assert ready, "the browser says nothing"
            part = os.read(self._read, 1 << 16)
            assert part, "the browser has ended"
            self._buffer += part
        text, _, self._buffer = self._buffer.partition(b"\0")
        found = json.loads(text)
        self._note(found.get("method"), found.get("params", {}))
        return found

    def _note(self, event: str | None, params: dict[str, Any]) -> None:
        if event == "Runtime.exceptionThrown":
            self.errors.append(json.dumps(params["exceptionDetails"]))
        if event == "Log.entryAdded" and params["entry"]["level"] == "error":
            self.errors.append(
                f"{params['entry']['text']} {params['entry'].get('url')}"
            )
        if event == "Runtime.consoleAPICalled" and params["type"] == "error":
            self.errors.append(json.dumps(params["args"]))

    def open(self, address: str) -> None:
        """Loads a page."""
        self.call("Page.navigate", url=address)
        self.until(
            "document.readyState === 'complete' && location.href !== 'about:blank'"
        )

    def look(self, width: int, height: int, scheme: str = "light") -> None:
        """Gives the window a size, and light or dark."""
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self.call("Emulation.setEmulatedMedia", features=features)

    def run(self, code: str) -> Any:
        """The value of an expression of JavaScript."""
        found = self.call("Runtime.evaluate", expression=code, returnByValue=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def until(self, code: str, seconds: float = _PATIENCE) -> Any:
        """Waits until an expression is true, and gives it."""
        end = time.monotonic() + seconds
        while not (value := self.run(code)):
            assert time.monotonic() < end, f"never true: {code}"
            time.sleep(0.05)
        return value

    def point(self, x: float, y: float) -> None:
        """Moves the mouse."""
        self.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def save(self, path: Path) -> None:
        """Writes a picture of the window."""
        data = self.call("Page.captureScreenshot")["data"]
        path.write_bytes(base64.b64decode(data))


@contextmanager
def browsing(folder: Path) -> Iterator[Page]:
    """A browser's page, while it is entered; folder: for what the browser keeps."""
    assert PROGRAM is not None
    theirs_in, ours_out = os.pipe()
    ours_in, theirs_out = os.pipe()
    options = ["--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run"]
    options += ["--remote-debugging-pipe", "--disable-dev-shm-usage"]
    options += [f"--user-data-dir={folder}", "--disable-background-networking"]

    # The browser reads from descriptor 3 and writes to 4.
    script = f'exec "$0" "$@" 3<&{theirs_in} 4>&{theirs_out}'
    process = subprocess.Popen(
        ["bash", "-c", script, PROGRAM, *options],
        pass_fds=(theirs_in, theirs_out),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    os.close(theirs_in)
    os.close(theirs_out)
    try:
        yield Page(ours_out, ours_in)
    finally:
        process.terminate()
        process.wait(timeout=30)
        os.close(ours_out)
        os.close(ours_in)
