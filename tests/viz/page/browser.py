# SPDX-License-Identifier: Apache-2.0
"""A headless Chromium, driven over a pipe (Chrome DevTools Protocol): opens a page, moves the mouse, types, looks."""
import base64
import json
import os
import shutil
import subprocess
import tempfile
import time
from typing import Any, Optional


def found() -> Optional[str]:
    return next((path for path in map(shutil.which, ("chromium", "chromium-browser", "google-chrome")) if path), None)


class Browser:
    def __init__(self, width: int, height: int):
        self.folder = tempfile.mkdtemp()
        from_browser, to_us = os.pipe()
        from_us, to_browser = os.pipe()

        def channels() -> None:  # the browser reads descriptor 3 and writes 4
            os.dup2(from_us, 100), os.dup2(to_us, 101)
            os.dup2(100, 3), os.dup2(101, 4)

        self.process = subprocess.Popen(
            [str(found()), "--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--remote-debugging-pipe",
             "--disable-extensions", "--no-first-run", "--disable-background-networking",
             f"--user-data-dir={self.folder}", f"--window-size={width},{height}", "about:blank"],
            close_fds=False, preexec_fn=channels, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(from_us), os.close(to_us)
        self.reads, self.writes = os.fdopen(from_browser, "rb"), os.fdopen(to_browser, "wb")
        self.number, self.session, self.events = 0, None, []
        target = next(t for t in self.call("Target.getTargets")["targetInfos"] if t["type"] == "page")
        self.session = self.call("Target.attachToTarget", targetId=target["targetId"], flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network"):
            self.call(domain + ".enable")
        self.size(width, height)

    def size(self, width: int, height: int, scale: float = 1) -> None:
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=scale, mobile=False)

    def call(self, method: str, **parameters: Any) -> dict:
        self.number += 1
        message = {"id": self.number, "method": method, "params": parameters}
        if self.session:
            message["sessionId"] = self.session
        self.writes.write(json.dumps(message).encode() + b"\0")
        self.writes.flush()
        while True:
            answer = self._next()
            if answer.get("id") == self.number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                return answer["result"]
            self.events.append(answer)

    def _next(self) -> dict:
        text = bytearray()
        while True:
            byte = self.reads.read(1)
            if not byte:
                raise RuntimeError("the browser has ended")
            if byte == b"\0":
                return json.loads(text)
            text += byte

    def evaluate(self, expression: str) -> Any:
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(answer["exceptionDetails"]["exception"].get("description", "a script failed"))
        return answer["result"].get("value")

    def open(self, address: str, ready: str, seconds: float = 120) -> None:
        self.call("Page.navigate", url=address)
        until = time.monotonic() + seconds
        while not self.evaluate(ready):
            if time.monotonic() > until:
                raise RuntimeError("the page is not ready: " + str(self.evaluate("document.body.innerText.slice(0, 300)")))
            time.sleep(0.05)

    def mouse(self, kind: str, x: float, y: float, **more: Any) -> None:
        self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, **more)

    def key(self, key: str, text: str = "") -> None:
        self.call("Input.dispatchKeyEvent", type="keyDown", key=key, text=text)
        self.call("Input.dispatchKeyEvent", type="keyUp", key=key)

    def frame(self) -> None:
        """Until two frames have been drawn."""
        self.evaluate("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done(true))))")

    def picture(self) -> bytes:
        return base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"])

    def requests(self) -> list[str]:
        self.evaluate("1")  # what has happened is here now
        return [event["params"]["request"]["url"] for event in self.events if event.get("method") == "Network.requestWillBeSent"]

    def close(self) -> None:
        try:
            self.call("Browser.close")
        except (RuntimeError, OSError):
            pass
        self.process.wait(timeout=30)
        shutil.rmtree(self.folder, ignore_errors=True)
