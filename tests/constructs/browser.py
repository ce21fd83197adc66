"""A page in headless Chromium, over the DevTools protocol on a pipe (Chromium's switch ``--remote-debugging-pipe``)."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

PROGRAMS = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")


class Browser:
    """One tab, and the events that it reports."""

    def __init__(self, commands: int, answers: int) -> None:
        self._commands = os.fdopen(commands, "wb", buffering=0)
        self._answers = os.fdopen(answers, "rb", buffering=0)
        self._read = b""
        self._session: str | None = None
        self._number = 0
        self.events: list[dict[str, Any]] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Network", "Page", "Runtime", "Log"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        self._number += 1
        session = {} if self._session is None else {"sessionId": self._session}
        message = {"id": self._number, "method": method, "params": parameters, **session}
        self._commands.write(json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == self._number:
                assert "error" not in answer, answer
                return dict(answer["result"])
            self.events.append(answer)

    def open(self, page: Path | str, width: int, height: int) -> None:
        """Open a file or an address in a window of a size, and wait until it is loaded."""
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600
        )
        self.events.clear()
        self.call("Page.navigate", url=page if isinstance(page, str) else page.as_uri())
        while "Page.loadEventFired" not in [event["method"] for event in self.events]:
            self.events.append(self._next())

    def value(self, expression: str) -> Any:
        """What an expression of JavaScript yields, evaluated from outside the page."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def close(self) -> None:
        self._commands.close()
        self._answers.close()

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._read:
            piece = os.read(self._answers.fileno(), 65_536)
            assert piece, "the browser has ended"
            self._read += piece
        message, self._read = self._read.split(b"\0", 1)
        return dict(json.loads(message))


@contextmanager
def browser(profile: Path) -> Iterator[Browser]:
    """Chromium without a window, with a profile of its own."""
    program = next(filter(None, map(shutil.which, PROGRAMS)), None)
    assert program, "needs Chromium: `apt-get install chromium-headless-shell fonts-dejavu-core`"
    commands_out, commands = os.pipe()
    answers, answers_in = os.pipe()
    # Chromium reads from descriptor 3 and writes to 4; the shell moves them there.
    line = f'exec 3<&{commands_out} 4>&{answers_in} && exec "$@"'
    arguments = [program, "--headless", "--no-sandbox", "--remote-debugging-pipe", f"--user-data-dir={profile}"]
    process = subprocess.Popen(
        ["bash", "-c", line, "bash", *arguments],
        pass_fds=(commands_out, answers_in),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    os.close(commands_out)
    os.close(answers_in)
    try:
        opened = Browser(commands, answers)
        yield opened
        opened.call("Browser.close")
        opened.close()
    finally:
        process.kill()
        process.wait()
