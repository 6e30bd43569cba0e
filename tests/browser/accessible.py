#!/usr/bin/env python3
"""accessible.py NEAP HOLD FOLDER: axe-core's rules on the pages that neap makes: of a trace that ran out of memory, of one
that did not, of two side by side, and of a series, at 1280 and 390 pixels, light and dark. No rule may be broken, and no page be wider than its
window.

axe-core is that of the interpreter's axe-playwright-python. Pictures lie in FOLDER. Without Chromium: exit status 77.
"""
import contextlib
import importlib.util
import json
import os
import subprocess
import sys
import tempfile

import chromium

HERE = os.path.dirname(os.path.abspath(__file__))


def make_trace(path):
    """Steps that grow until a request does not fit."""
    with open(path, "w", encoding="utf-8") as out:
        for step in range(30):
            out.write(f"a {step * 2} {64 << 20} 0\na {step * 2 + 1} {8 << 20} 0\nf {step * 2 + 1}\ns\n")


def make_pages(neap, folder):
    """The pages, by name."""
    trace = os.path.join(folder, "trace.txt")
    make_trace(trace)
    environment = dict(os.environ, NEAP_DEVICE="sim", NEAP_SIM="mem=1GiB,world=accessible", XDG_STATE_HOME=folder)

    def call(*words):
        done = subprocess.run([neap, *words], cwd=folder, env=environment, capture_output=True, text=True, check=False)
        if done.returncode not in (0, 1):
            raise AssertionError(f"neap {' '.join(words)}: {done.stderr}")

    call("analyze", "trace.txt", "--html", "trace.html")
    call("analyze", "trace.txt", "--memory", "1GiB", "--html", "oom.html")
    call("compare", "trace.txt", "trace.txt", "--html", "compared.html")
    with open(os.path.join(folder, "series.yaml"), "w", encoding="utf-8") as out:
        out.write("name: night\nexperiments:\n  - name: good\n    command: sleep 0.2\n  - name: bad\n    command: 'false'\n")
    call("series", "series.yaml", "--folder", "series")
    return {name: os.path.join(folder, path) for name, path in
            (("trace", "trace.html"), ("oom", "oom.html"), ("compared", "compared.html"), ("series", "series/report.html"))}


def broken_rules(page, axe):
    """A line for each rule that the page breaks, with the first element that does."""
    page.evaluate(axe + "; 0")
    found = json.loads(page.evaluate("axe.run().then((result) => JSON.stringify(result.violations.map((rule) =>"
                                     " [rule.id, rule.help, rule.nodes.length, rule.nodes[0].html.slice(0, 200)])))"))
    return [": ".join(map(str, rule)) for rule in found]


@contextlib.contextmanager
def live_page(neap, hold, folder):
    """The address of a server, next to a process that holds memory."""
    environment = dict(os.environ, NEAP_DEVICE="sim", NEAP_SIM="mem=1GiB,gpus=2,world=accessible-live", XDG_STATE_HOME=folder,
                       XDG_RUNTIME_DIR=folder)  # fmt: skip
    holder = subprocess.Popen([hold, "--for", "600000", "100M"], env=dict(environment, NEAP_ATTACH="1"))
    server = subprocess.Popen([neap, "serve", "--listen", "127.0.0.1:0", "--every", "200ms"], env=environment,
                              stdout=subprocess.PIPE, text=True)  # fmt: skip
    try:
        yield server.stdout.readline().split()[2]
    finally:
        for process in (holder, server):
            process.terminate()
            process.wait()


def check(browser, name, address, axe, shots):
    problems = []
    for width, height in ((1280, 800), (390, 844)):
        for dark in (False, True):
            page = browser.open(address, width, height, dark)
            page.until("document.readyState === 'complete' && (!window.neapPage || neapPage.settled())")
            if name == "live":
                page.until("document.querySelectorAll('#processes tr').length === 1")
            if name == "oom" and page.evaluate("neapPage.state().cursor !== JSON.parse(document.querySelector('#facts-0').textContent).failure[1]"):
                problems.append("the page of a failed trace does not open at the failure")
            page.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
            where = f"{name}, {width} pixels, {'dark' if dark else 'light'}"
            problems += [f"{where}: {rule}" for rule in broken_rules(page, axe)]
            wide = page.evaluate("document.documentElement.scrollWidth")
            if wide > width:
                problems.append(f"{where}: it is {wide} pixels wide")
            page.screenshot(os.path.join(shots, f"{name}-{width}-{'dark' if dark else 'light'}.png"), whole=True)
            page.close()
    return problems


def main():
    neap, hold, shots = map(os.path.abspath, sys.argv[1:])
    executable = chromium.find()
    if not executable:
        print("skipped: no Chromium (Debian's package: chromium)")
        return 77
    (package,) = importlib.util.find_spec("axe_playwright_python").submodule_search_locations
    with open(os.path.join(package, "axe.min.js"), encoding="utf-8") as source:
        axe = source.read()
    os.makedirs(shots, exist_ok=True)
    problems = []
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        pages = make_pages(neap, folder)
        own = os.path.join(folder, "browser")
        os.mkdir(own)
        with live_page(neap, hold, own) as address, chromium.Chromium(executable, own, limit=300) as browser:
            addresses = {name: "file://" + path for name, path in pages.items()} | {"live": address}
            for name, at in addresses.items():
                problems += check(browser, name, at, axe, shots)
    print("\n".join(problems) or f"{len(addresses)} pages, 4 views of each: no rule is broken")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
