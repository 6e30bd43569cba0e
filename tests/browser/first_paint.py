#!/usr/bin/env python3
"""first_paint.py NEAP [--events N] [--times N] [--folder FOLDER]: opens the page of a trace in headless Chromium.

Makes a trace whose contents are known (make_trace.py), has `neap analyze --html` make its page, and

  - prints when the first content was painted, when all allocations were there to be pointed at, and how long a picture
    takes while the wheel turns: medians
  - zooms with the wheel, moves, points and clicks, and compares what the page says with what the trace has
  - fails on any error of a script or the console, on any request that leaves the file; at a million events and more also
    when the median first paint takes 2 s or more

Keeps the page and pictures of it in FOLDER. NEAP_LONG=1: a million events, five times; else 20000, once. Exits 77 where
there is no Chromium.
"""
import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile

import chromium

SHIFT = 8
LONG = os.environ.get("NEAP_LONG") == "1"


def text_of(page, selector):
    """The element's text, with plain digits."""
    return page.evaluate(f"document.querySelector({selector!r}).textContent").replace("\u202f", "")


def size_text(size):
    value = float(size)
    unit = "B"
    for unit in ("KiB", "MiB", "GiB"):
        value /= 1024
        if value < 1024 or unit == "GiB":
            break
    return f"{value:.{2 if value < 9.995 else 1 if value < 99.95 else 0}f} {unit}"


def shown(text):
    """A name as the page shows it."""
    return "".join("\ufffd" if character in "\u202a\u202b\u202d\u202e" else character for character in text)


def expect(wanted, text, where):
    missing = [item for item in wanted if item not in text]
    if missing:
        raise AssertionError(f"{where}: no {missing[0]!r} in {text!r}")


def place(page, known):
    return page.evaluate(f"neapPage.place({known['event']}, {known['below'] + known['size'] / 2})")


def height(page, known):
    low, high = (page.evaluate(f"neapPage.place({known['event']}, {known['below'] + part})[1]") for part in (0, known["size"]))
    return low - high


def zoom_to(page, known):
    """Zooms with the wheel alone, until the place is wide and high enough to be pointed at. Returns how long the
    pictures took."""
    took = []
    for _ in range(200):
        view = page.evaluate("neapPage.state().view")
        wide = view["x1"] - view["x0"] < 600
        high = height(page, known) > 6
        if wide and high:
            break
        x, y = place(page, known)
        page.wheel(x, math.ceil(y), -200, 0 if not wide else SHIFT)  # the browser rounds down: the place would leave the screen
        page.until("neapPage.settled()")
        took.append(page.evaluate("neapPage.state().slow"))
    else:
        raise AssertionError("the wheel does not zoom")
    return took


def check_place(page, known):
    x, y = place(page, known)
    page.move(x, y)
    wanted = [f"{known['size']} bytes" if known["size"] >= 1024 else "", size_text(known["size"]),
              f"event {known['begin']},", known["address"], f":{known['line']} {shown(known['name'])}"]
    expect(wanted, text_of(page, "#tip"), f"pointing at the {known['what']} at event {known['event']}")
    page.click(x, y)
    frames = page.evaluate("document.querySelector('#details ol').children.length")
    if frames != known["frames"]:
        raise AssertionError(f"{frames} frames in the details, {known['frames']} in the trace")
    expect([f"{shown(known['name'])}  {shown(known['file'])}:{known['line']}"], text_of(page, "#details"), "the details")
    state = page.evaluate("neapPage.state()")
    column = (state["view"]["x1"] - state["view"]["x0"]) / 1000  # at most this many events share one column
    if abs(state["cursor"] - known["event"]) > column + 1:
        raise AssertionError(f"the cursor is at {state['cursor']}, not at {known['event']}")


def check_picture(page, shots, places):
    """Visits every known place by wheel, pointer and click."""
    took = []
    page.screenshot(os.path.join(shots, "whole.png"), whole=True)
    for known in places:
        page.evaluate("document.querySelector('#stack').focus()")
        page.key("0")
        if known["what"] != "landmark":
            took += zoom_to(page, known)
        check_place(page, known)
        page.screenshot(os.path.join(shots, f"{known['what']}-{known['event']}.png"))
    return took


def check_hole(page, hole):
    """In the map, the place of a block that left its segment empty."""
    page.evaluate("document.querySelector('#map').focus()")
    page.key("0")
    page.evaluate("document.querySelector('#map').scrollIntoView({block: 'center'})")
    page.until("neapPage.settled()")
    page.move(*page.evaluate(f"neapPage.placeOfAddress({hole['event']}, {hole['address']})"))
    expect([size_text(hole["size"]) + " segment", "at " + hole["low"], size_text(hole["size"]) + " free", "nothing live"],
           text_of(page, "#tip"), "pointing at a hole")


def check_segments(page, places):
    """At the landmark: the segment that it fills names it as the holder, and the segment with the most free bytes
    comes first."""
    landmark = next(known for known in places if known["what"] == "landmark")
    page.evaluate("""(() => { const order = document.querySelector('#order'); order.value = 'size';
        order.dispatchEvent(new Event('change')); document.querySelector('#segments').scrollIntoView({block: 'center'}); })()""")
    page.frame()
    box = page.evaluate("(() => { const box = document.querySelector('#segments').getBoundingClientRect();"
                        " return [box.left, box.top, box.width]; })()")
    page.move(box[0] + 60, box[1] + 12)
    expect([size_text(landmark["size"]) + " segment", "held by 1 block", "landmark.py:77 landmark"], text_of(page, "#tip"),
           "pointing at a segment's name")
    page.move(box[0] + box[2] * 0.6, box[1] + 12)
    expect([landmark["address"], "landmark.py:77 landmark"], text_of(page, "#tip"), "pointing at a segment's block")


def flame_boxes(page, part):
    """Left, width and text, in pixels, of each box of the flame graph whose text contains `part`."""
    return page.evaluate("Array.from(document.querySelectorAll('#flame button'), (box) => [box.offsetLeft, box.offsetWidth,"
                         f" box.textContent]).filter((box) => box[2].includes({json.dumps(part)}))")


def check_flame(page):
    """At the landmark: its line is as wide as its share. A click on it gives it the whole width; a click above goes
    back."""
    width = page.evaluate("document.querySelector('#flame').clientWidth")
    share = float(text_of(page, "#held tbody tr:first-child td:nth-child(2)")) / 100
    (box,) = flame_boxes(page, "landmark.py:77")
    if abs(box[1] - share * width) > 3:
        raise AssertionError(f"the landmark's line takes {box[1]} of {width} pixels, and {share:.1%} of what is live")
    click = "Array.from(document.querySelectorAll('#flame button')).find((box) => box.textContent.includes(%r)).click()"
    page.evaluate(click % "landmark.py:77")
    (box,) = flame_boxes(page, "landmark.py:77")
    if box[1] < width - 2:
        raise AssertionError(f"chosen, it takes {box[1]} of {width} pixels")
    page.evaluate(click % "all that is live")
    (back,) = flame_boxes(page, "landmark.py:77")
    if abs(back[1] - share * width) > 3:
        raise AssertionError(f"shown again in all, it takes {back[1]} of {width} pixels")


def check_words(page):
    """A word is explained at a touch."""
    page.evaluate("document.querySelector('.tiles button.word').click()")
    expect(["as many as the program asked for"], text_of(page, "[popover]:popover-open"), "a word of the figures")
    page.key("Escape")
    page.evaluate("Array.from(document.querySelectorAll('#legend button')).find((item) => item.textContent.startsWith('activations')).click()")
    expect(["keeps until backward needs it"], text_of(page, "#meaning"), "a purpose of the legend")
    page.evaluate("document.querySelector('#legend button[aria-pressed=true]').click()")
    if text_of(page, "#meaning"):
        raise AssertionError("a purpose that is no longer chosen is explained")


def check_keys(page):
    page.evaluate("document.querySelector('#stack').focus()")
    before = page.evaluate("neapPage.state()")
    page.key(".")
    page.key("ArrowDown")
    page.key("+")
    page.key("ArrowRight")
    after = page.evaluate("neapPage.state()")
    if after["cursor"] != before["cursor"] + 1 or after["pinned"] >= before["pinned"] or after["pinned"] < 0:
        raise AssertionError(f"keys: {before} became {after}")
    if not after["view"]["x1"] - after["view"]["x0"] < before["view"]["x1"] - before["view"]["x0"]:
        raise AssertionError("plus does not zoom")


def check_controls(page, shots, places, hole):
    landmark = next(known for known in places if known["what"] == "landmark")
    page.evaluate("document.querySelector('#stack').focus()")
    page.key("0")
    page.click(*place(page, landmark))
    total = text_of(page, "#held tbody tr:first-child td:nth-child(1)")
    if total != size_text(landmark["size"]):
        raise AssertionError(f"the top holder has {total}")
    page.evaluate("document.querySelector('#held tbody button').click()")
    page.frame()
    if page.evaluate("document.querySelector('#held tbody button').getAttribute('aria-pressed')") != "true":
        raise AssertionError("choosing a holder does not show as chosen")
    page.screenshot(os.path.join(shots, "chosen.png"))
    check_flame(page)
    check_words(page)
    check_segments(page, places)
    check_hole(page, hole)
    page.evaluate("scrollTo(0, 0)")
    page.click(*place(page, landmark))
    check_keys(page)
    page.key("0")
    page.evaluate("document.querySelector('#unselect:not([hidden])')?.click()")
    page.evaluate("(() => { const axis = document.querySelector('#axis'); axis.value = 'time';"
                  " axis.dispatchEvent(new Event('change')); })()")
    page.until("neapPage.settled()")
    page.move(*place(page, landmark))
    expect(["landmark.py:77 landmark", landmark["address"]], text_of(page, "#tip"), "pointing, over time")
    before = page.evaluate("neapPage.state().view")
    x, y = place(page, landmark)
    page.wheel(x, y, -300)
    page.drag((x, y), (x - 120, y))
    after = page.evaluate("neapPage.state().view")
    if not after["x1"] - after["x0"] < before["x1"] - before["x0"] or not after["x0"] > before["x0"]:
        raise AssertionError(f"wheel and drag: {before} became {after}")


def open_page(browser, url, width, height, dark=False):
    page = browser.open(url, width, height, dark)
    page.until("window.neapPage !== undefined && document.readyState === 'complete'")
    page.evaluate("neapPage.begun")
    page.until("neapPage.settled()")
    problem = text_of(page, ".state")
    if problem:
        raise AssertionError(problem)
    return page


def times_of(page):
    """When the first content was painted, and when everything had arrived."""
    return (page.until("performance.getEntriesByName('first-contentful-paint').map((e) => e.startTime)[0]"),
            page.evaluate("performance.getEntriesByName('neap-ready')[0].startTime"))


def measure(executable, url, folder, times):
    """Each time in a new browser, whose first page it is."""
    found = []
    for index in range(times):
        own = os.path.join(folder, str(index))
        os.mkdir(own)
        with chromium.Chromium(executable, own) as browser:
            found.append(times_of(open_page(browser, url, 1400, 900)))
    return found


def look(executable, url, folder, shots, places, hole):
    own = os.path.join(folder, "look")
    os.mkdir(own)
    with chromium.Chromium(executable, own, limit=300) as browser:
        page = open_page(browser, url, 1400, 900)
        times = times_of(page)
        took = check_picture(page, shots, places)
        check_controls(page, shots, places, hole)
        problems = page.problems
        page.close()
        for name, width, height, dark in (("dark", 1400, 900, True), ("narrow", 420, 800, False)):
            page = open_page(browser, url, width, height, dark)
            wide = page.evaluate("document.documentElement.scrollWidth")
            if wide > width:
                raise AssertionError(f"{wide} pixels are needed where there are {width}")
            page.screenshot(os.path.join(shots, name + ".png"), whole=True)
            problems += page.problems
            page.close()
    if problems:
        raise AssertionError("\n".join(problems))
    return times, took


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("neap")
    parser.add_argument("--events", type=int, default=1000000 if LONG else 20000)
    parser.add_argument("--times", type=int, default=5 if LONG else 1)
    parser.add_argument("--folder", default="page")
    arguments = parser.parse_args()
    executable = chromium.find()
    if not executable:
        print("skipped: no Chromium (Debian's package: chromium)")
        return 77
    shots = os.path.abspath(arguments.folder)
    os.makedirs(shots, exist_ok=True)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:  # its helper processes may write until they end
        trace = os.path.join(folder, "trace.pickle")
        page = os.path.join(shots, "page.html")
        maker = os.path.join(os.path.dirname(os.path.abspath(__file__)), "make_trace.py")
        truth = json.loads(subprocess.run([sys.executable, maker, trace, str(arguments.events)], check=True,
                                          capture_output=True, text=True).stdout)
        subprocess.run([arguments.neap, "analyze", trace, "--html", page], check=True, stdout=subprocess.DEVNULL)
        url = "file://" + page
        first, took = look(executable, url, folder, shots, truth["places"], truth["hole"])
        paints, readies = zip(first, *measure(executable, url, folder, arguments.times - 1))
    size = os.path.getsize(page)
    print(f"{truth['events']} events, {size / 2**20:.2f} MiB, {size / truth['events']:.2f} bytes per event")
    paint = statistics.median(paints)
    print(f"first contentful paint {paint:.0f} ms, median of {len(paints)} ({', '.join(f'{value:.0f}' for value in paints)})")
    print(f"every allocation can be pointed at after {statistics.median(readies):.0f} ms")
    print(f"a picture takes {statistics.median(took):.0f} ms, median of {len(took)} turns of the wheel, {max(took):.0f} ms at most")
    print(f"{len(truth['places'])} places of the trace are as they should be; pictures in {shots}")
    if truth["events"] >= 1000000 and paint >= 2000:
        print("the first paint takes too long")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
