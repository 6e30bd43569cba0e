"""A headless Chromium, driven through a pipe in the protocol of its developer tools: nothing but Python's own library.

    with Chromium(path, folder) as browser:
        page = browser.open("file:///...", width=1400, height=900, dark=False)
        page.evaluate("1 + 1")
        page.move(x, y), page.wheel(x, y, delta), page.drag((x, y), (x, y)), page.click(x, y), page.key("ArrowUp")
        page.screenshot(path)
        page.problems    errors of scripts and of the console, requests that left the file

Waits for conditions, never for durations; everything ends after `limit` seconds at most.
"""
import base64
import json
import os
import select
import shutil
import signal
import subprocess
import time


class BrowserError(Exception):
    pass


def find():
    for name in ("chromium", "chromium-browser", "google-chrome"):
        path = shutil.which(name)
        if path:
            return path
    return None


class Chromium:
    def __init__(self, path, folder, limit=120):
        self.deadline = time.monotonic() + limit
        self.number = 0
        self.buffer = b""
        self.events = []
        to_read, self.to = os.pipe()
        self.of, of_write = os.pipe()
        command = [path, "--headless=new", "--remote-debugging-pipe", "--no-sandbox", "--disable-gpu", "--no-first-run",
                   "--disable-extensions", "--disable-background-networking", "--disable-component-update",
                   "--disable-sync", "--hide-scrollbars", "--force-device-scale-factor=1", "--mute-audio",
                   "--user-data-dir=" + os.path.join(folder, "profile"), "about:blank"]

        def place():
            # The protocol uses descriptors 3 and 4, whatever ours are.
            low = os.dup(to_read)
            high = os.dup(of_write)
            low, high = (os.dup(low), os.dup(high)) if min(low, high) < 5 else (low, high)
            os.dup2(low, 3)
            os.dup2(high, 4)

        self.log = open(os.path.join(folder, "chromium.log"), "wb")
        environment = dict(os.environ, HOME=folder, XDG_CONFIG_HOME=folder, XDG_CACHE_HOME=folder)
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log,
                                        close_fds=False, preexec_fn=place, start_new_session=True, env=environment)
        os.close(to_read)
        os.close(of_write)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        for descriptor in (self.to, self.of):
            os.close(descriptor)
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait()
        self.log.close()

    def send(self, method, session=None, **params):
        self.number += 1
        message = {"id": self.number, "method": method, "params": params}
        if session:
            message["sessionId"] = session
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self.to, data):]
        return self.number

    def receive(self):
        """The next message; raises at the deadline or when the browser has gone."""
        while b"\0" not in self.buffer:
            left = self.deadline - time.monotonic()
            if left <= 0 or not select.select([self.of], [], [], left)[0]:
                raise BrowserError("Chromium did not answer in time")
            data = os.read(self.of, 1 << 20)
            if not data:
                raise BrowserError("Chromium ended: see chromium.log")
            self.buffer += data
        message, self.buffer = self.buffer.split(b"\0", 1)
        return json.loads(message)

    def call(self, method, session=None, **params):
        number = self.send(method, session, **params)
        while True:
            message = self.receive()
            if message.get("id") == number:
                if "error" in message:
                    raise BrowserError(f"{method}: {message['error']}")
                return message["result"]
            self.events.append(message)

    def open(self, url, width, height, dark=False, scale=1):
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        page = Page(self, session, target)
        for domain in ("Page", "Runtime", "Network", "Log"):
            page.call(domain + ".enable")
        page.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=scale, mobile=False)
        page.call("Emulation.setEmulatedMedia",
                  features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])
        page.url = url
        failed = page.call("Page.navigate", url=url).get("errorText")
        if failed:
            raise BrowserError(f"{url}: {failed}")
        return page


class Page:
    def __init__(self, browser, session, target):
        self.browser = browser
        self.session = session
        self.target = target
        self.url = ""

    def call(self, method, **params):
        return self.browser.call(method, self.session, **params)

    def close(self):
        self.browser.call("Target.closeTarget", targetId=self.target)

    def evaluate(self, expression):
        """The result of a promise."""
        result = self.call("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in result:
            details = result["exceptionDetails"]
            raise BrowserError(details.get("exception", {}).get("description") or details["text"])
        return result["result"].get("value")

    def until(self, expression):
        """Evaluates until it is true. For what the browser's own frames bring, not for time to pass."""
        while True:
            value = self.evaluate(expression)
            if value:
                return value
            self.evaluate("new Promise((go) => setTimeout(go, 20))")

    def frame(self):
        """Waits two frames: then everything that was requested is drawn."""
        self.evaluate("new Promise((go) => requestAnimationFrame(() => requestAnimationFrame(go)))")

    def mouse(self, kind, x, y, **more):
        self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, **more)

    def move(self, x, y):
        self.mouse("mouseMoved", x, y)
        self.frame()

    def wheel(self, x, y, delta, modifiers=0):
        self.mouse("mouseWheel", x, y, deltaX=0, deltaY=delta, modifiers=modifiers)
        self.frame()

    def click(self, x, y):
        for kind in ("mousePressed", "mouseReleased"):
            self.mouse(kind, x, y, button="left", buttons=1 if kind == "mousePressed" else 0, clickCount=1)
        self.frame()

    def drag(self, start, end, modifiers=0):
        self.mouse("mouseMoved", *start)
        self.mouse("mousePressed", *start, button="left", buttons=1, clickCount=1, modifiers=modifiers)
        for part in (0.3, 0.7, 1):
            self.mouse("mouseMoved", *(a + (b - a) * part for a, b in zip(start, end)), button="left", buttons=1,
                       modifiers=modifiers)
        self.mouse("mouseReleased", *end, button="left", clickCount=1, modifiers=modifiers)
        self.frame()

    def key(self, name, text=None):
        more = {"text": text} if text else {}
        self.call("Input.dispatchKeyEvent", type="keyDown", key=name, **more)
        self.call("Input.dispatchKeyEvent", type="keyUp", key=name)
        self.frame()

    def screenshot(self, path, whole=False):
        clip = {}
        if whole:
            size = self.call("Page.getLayoutMetrics")["cssContentSize"]
            clip = {"captureBeyondViewport": True, "clip": {"x": 0, "y": 0, "width": size["width"],
                                                            "height": min(size["height"], 6000), "scale": 1}}
        data = self.call("Page.captureScreenshot", format="png", **clip)["data"]
        with open(path, "wb") as file:
            file.write(base64.b64decode(data))

    @property
    def problems(self):
        found = []
        for event in self.browser.events:
            if event.get("sessionId") != self.session:
                continue
            method = event.get("method")
            params = event.get("params", {})
            if method == "Runtime.exceptionThrown":
                details = params["exceptionDetails"]
                found.append("exception: " + (details.get("exception", {}).get("description") or details["text"]))
            elif method == "Log.entryAdded" and params["entry"]["level"] in ("error", "warning"):
                found.append("log: " + params["entry"]["text"])
            elif method == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning", "assert"):
                found.append("console: " + json.dumps(params["args"]))
            elif method == "Network.requestWillBeSent" and params["request"]["url"] != self.url:
                found.append("request: " + params["request"]["url"][:200])
        return found
