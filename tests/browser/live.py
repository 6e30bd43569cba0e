#!/usr/bin/env python3
"""The live page of neap serve in a headless Chromium: what it shows of a process that holds memory, that it follows changes,
that a name that means harm stays text, that it asks nothing of any other place, and says when the server is gone.

    live.py NEAP HOLD --folder FOLDER

Keeps pictures of it in FOLDER. Exits 77 where there is no Chromium.
"""
import argparse
import os
import pathlib
import signal
import subprocess
import sys
import tempfile

import chromium

HOSTILE = "<img src=x onerror=alert(1)>.py"


def check(good, what):
    if not good:
        raise SystemExit(f"live.py: {what}")


def serve(neap, environment):
    server = subprocess.Popen([neap, "serve", "--listen", "127.0.0.1:0", "--every", "200ms"], env=environment,
                              stdout=subprocess.PIPE, text=True)
    return server, server.stdout.readline().split()[2].rstrip("/")


def text(page, selector):
    return page.evaluate(f"Array.from(document.querySelectorAll({selector!r}), (e) => e.textContent).join('\\n')")


def look(page, folder, holder):
    page.until("document.querySelectorAll('#processes tr').length === 1")
    page.until("document.querySelector('#state').textContent.startsWith('at ')")
    rows = text(page, "#processes td").split("\n")
    check(rows[0] == str(holder.pid) and rows[4] == "108 MiB" and rows[5] == "100 MiB", f"the process: {rows}")
    check(HOSTILE in rows[-1], f"its command is shown as text: {rows[-1]}")
    check(page.evaluate("document.querySelectorAll('td img').length") == 0, "a name became an element")
    legend = text(page, "#gpu0 .legend > span")
    check("allocated 100 MiB" in legend and "context 8.00 MiB" in legend and "unexplained 0 B" in legend, legend)
    widths = page.evaluate("Array.from(document.querySelectorAll('#gpu0 .bar span'), (e) => e.getBoundingClientRect().width)")
    whole = page.evaluate("document.querySelector('#gpu0 .bar').getBoundingClientRect().width")
    check(abs(sum(widths) - whole) < 2 and abs(widths[0] / whole - 100 / 256) < 0.02, f"the bar's parts: {widths} of {whole}")
    row = page.evaluate("""(() => { const canvas = document.querySelector('#gpu0 canvas');
        return Array.from(canvas.getContext('2d').getImageData(0, canvas.height - 2, canvas.width, 1).data); })()""")
    check(row[:4] != row[-4:], "the curve's newest point is drawn")
    check(page.evaluate("document.documentElement.scrollWidth <= innerWidth"), "the page is wider than its window")
    page.screenshot(folder / "live.png", whole=True)


def problems(page, address):
    """Requests to the server itself are expected."""
    return [one for one in page.problems if not one.startswith(f"request: {address}/") and one != "request: data:,"]


def run(executable, arguments, folder, place):
    world = f"live-page-{os.getpid()}"
    environment = dict(os.environ, NEAP_SIM=f"mem=256MiB,context=8MiB,reserved=2MiB,gpus=2,world={world}",
                       XDG_RUNTIME_DIR=place, XDG_STATE_HOME=place, HOME=place)
    environment.pop("LD_LIBRARY_PATH", None)
    named = pathlib.Path(place) / HOSTILE
    named.symlink_to(pathlib.Path(arguments.hold).resolve())
    holder = subprocess.Popen([HOSTILE, "--for", "600000", "100M"], executable=named, env=dict(environment, NEAP_ATTACH="1"))
    server, address = serve(arguments.neap, environment)
    try:
        with chromium.Chromium(executable, place) as browser:
            page = browser.open(address + "/", 1200, 900)
            look(page, folder, holder)
            narrow = browser.open(address + "/", 480, 900, dark=True)
            narrow.until("document.querySelectorAll('#processes tr').length === 1")
            check(narrow.evaluate("document.documentElement.scrollWidth <= innerWidth"), "the page is wider than a narrow window")
            narrow.screenshot(folder / "live_dark.png", whole=True)
            narrow.close()
            holder.kill()
            holder.wait()
            page.until("document.querySelector('#holders').hidden")
            check("allocated 0 B" in text(page, "#gpu0 .legend > span"), "the figures follow")
            check(problems(page, address) == [], f"problems: {problems(page, address)}")
            server.send_signal(signal.SIGINT)
            check(server.wait(10) == 0, "the server ends by Ctrl-C with 0")
            page.until("document.querySelector('#state').textContent.startsWith('no new figures')")
    finally:
        for process in (holder, server):
            if process.poll() is None:
                process.kill()
                process.wait()
        pathlib.Path(f"/dev/shm/neap-sim-{os.getuid()}-{world}").unlink(missing_ok=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("neap")
    parser.add_argument("hold")
    parser.add_argument("--folder", type=pathlib.Path, required=True)
    arguments = parser.parse_args()
    executable = chromium.find()
    if not executable:
        print("no Chromium: the page is not looked at")
        return 77
    arguments.folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="neap-live-") as place:
        run(executable, arguments, arguments.folder, place)
    return 0


if __name__ == "__main__":
    sys.exit(main())
