"""The section of docs/gpu-results.md from the results of tools/gpu_day.sh."""

import json
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "bench"))
import gpu_events

MIB = 1 << 20
BEFORE = "## To fill this page"


def lines(path):
    """The values of a file with a JSON value on each line; leaves out a line that was cut off."""
    found = []
    if not path.exists():
        return found
    for line in path.read_text(errors="replace").splitlines():
        try:
            value = json.loads(line)
        except ValueError:
            continue
        if isinstance(value, dict):
            found.append(value)
    return found


def cells(*texts):
    return "| " + " | ".join(str(text).replace("|", "\\|").replace("\n", " ") for text in texts) + " |"


def table(head, rows):
    return [cells(*head), cells(*["---"] * len(head)), *(cells(*row) for row in rows), ""] if rows else []


def mib(count):
    return "-" if count is None else f"{count / MIB:.1f}"


def section(folder, simulated=None):
    """All of it as text; `simulated`: the programs' recording on the simulator, to compare with."""
    folder = pathlib.Path(folder)
    rows = lines(folder / "truth.jsonl")
    head = next((row for row in rows if "case" not in row), {})
    driver = {row["part"]: row for row in lines(folder / "driver.jsonl") if "part" in row}
    days = lines(folder / "day.jsonl")
    name = head.get("gpu") or driver.get("machine", {}).get("name") or "a GPU"
    date = head.get("date") or (days[0]["date"].split()[0] if days else "")
    packages = ", ".join(f"{key} {value}" for key, value in head.get("packages", {}).items())
    text = [f"## {date}, {name}, measured", ""]
    text += [f"By `tools/gpu_day.sh`. Driver {head.get('driver')}, CUDA {head.get('cuda')}, Python {head.get('python')}; {packages}.", ""]
    if head.get("simulated"):
        text += [f"**Simulated ({head['simulated']}): not a measurement of a GPU.**", ""]
    ended = {row["part"]: row for row in days}
    text += table(("part", "ended", "seconds", "exit status"), [(r["part"], r["status"], r["seconds"], r["exit"]) for r in ended.values()])
    text += _tests(folder / "tests.md") + _driver(driver) + _truth(rows, simulated) + _allocators(lines(folder / "allocators.jsonl"))
    text += _live(lines(folder / "live.jsonl"))
    return "\n".join(text).rstrip() + "\n"


def _tests(path):
    """The output of tests/gpu.sh, with its headings one level lower."""
    text = path.read_text().strip() if path.exists() else ""
    return [("#" if line.startswith("#") else "") + line for line in text.splitlines()] + [""] if text else []


def _values(value, prefix=""):
    """The figures of a part in a flat list: (name, text)."""
    for key, inner in value.items():
        if isinstance(inner, dict) and "median_us" not in inner:
            yield from _values(inner, f"{prefix}{key}: ")
        else:
            yield prefix + key, _figure(inner)


def _figure(value):
    if isinstance(value, dict):
        return f"{value['median_us']:.2f} us, 99 % {value['p99_us']:.2f}, worst {value['worst_us']:.1f}"
    if isinstance(value, list):
        return "; ".join(", ".join(f"{k} {v}" for k, v in item.items()) if isinstance(item, dict) else str(item) for item in value)
    return str(value)


def _driver(parts):
    """A table for each part; members with the same inner names (handles of one size, kernels) become the columns of a second
    table."""
    text = ["### What the driver's calls cost, and what it decides", ""] if parts else []
    for name, part in parts.items():
        alike = [key for key, value in part.items() if isinstance(value, dict) and "median_us" not in value]
        alike = alike if len(alike) > 1 else []
        rest = {key: value for key, value in part.items() if key != "part" and key not in alike}
        text += [f"*{name}*", "", *table(("what", "measured"), list(_values(rest)))]
        rows = list(dict.fromkeys(row for key in alike for row in part[key]))
        text += table(("", *alike), [(row, *(_figure(part[key].get(row, "")) for key in alike)) for row in rows])
    return text


def _truth(rows, simulated):
    cases = [row for row in rows if "case" in row]
    if not cases:
        return []
    others = {row["case"]: row for row in lines(simulated) if "case" in row} if simulated else {}
    text = ["### Programs: what they took, and how near the simulator comes", ""]
    table_rows = []
    failed = []
    for row in {row["case"]: row for row in cases}.values():
        if "events" not in row:
            failed.append(f"- {row['case']}: {row.get('skipped') or row.get('failed')}")
            continue
        last = row["phases"][-1]
        beside = None if last[1] is None else last[1] - last[7]
        times = sorted(row["step_seconds"])
        step = f"{1000 * times[len(times) // 2]:.1f}" if times else "-"
        table_rows.append((row["case"], mib(row["allocated_peak"]), mib(row["reserved_peak"]), mib(last[1]), mib(beside), step,
                           *_beside(row, others.get(row["case"]))))  # fmt: skip
    text += table(("program", "allocated, MiB", "reserved", "process (NVML)", "beside the allocator", "step, ms", "events",
                   "equal, simulated", "allocated, reserved, simulated"), table_rows)  # fmt: skip
    phases = next((row["phases"] for row in cases if row["case"] == "phases" and "phases" in row), [])
    text += ["*What each library takes at its first call* (`phases`), in MiB", ""] if phases else []
    text += table(("after", "process (NVML)", "device used", "free by CUDA", "reserved"),
                  [(p[0], mib(p[1]), mib(p[2]), mib(p[5]), mib(p[7])) for p in phases])  # fmt: skip
    return text + failed + ([""] if failed else [])


def _beside(row, other):
    if not other or "events" not in other:
        return row["events"]["count"], "-", "-"
    found = gpu_events.compare(gpu_events.unpack(row["events"]), gpu_events.unpack(other["events"]))
    errors = [100 * (other[f"{kind}_peak"] / row[f"{kind}_peak"] - 1) for kind in ("allocated", "reserved")]
    return row["events"]["count"], f"{100 * found.equal / max(found.events, found.others, 1):.3f} %", "{:+.3f} %, {:+.3f} %".format(*errors)


def _allocators(rows):
    text = ["### neap's allocator beside PyTorch's, in real time", ""] if rows else []
    head = ("script", "memory", "allocator", "tokens (images) a second", "median step, ms", "worst", "calls a step", "calls of the run",
            "stalls", "reserved, MiB")  # fmt: skip
    measured = []
    for row in rows:
        found = [row["failed"], *[""] * 6] if "failed" in row else [
            f"{row['per_second']:.0f}", f"{row['median_ms']:.2f}", f"{row['worst_ms']:.2f}", f"{row['calls_a_step']:.1f}", row["calls"],
            row["stalls"], mib(row["reserved"])]  # fmt: skip
        measured.append((row["script"], row["memory"], row["allocator"], *found))
    return text + table(head, measured)


def _live(rows):
    text = ["### The command beside a trainer", ""] if rows else []
    return text + table(("check", "what", "measured"), [
        (row["check"] if not number else "", what, measured)
        for row in rows
        for number, (what, measured) in enumerate([("passed", "yes") if row["passed"] else ("**failed**", row["why"]), *row["measured"]])
    ])  # fmt: skip


def fill(page, text, real=True):
    """The page with this section in it, before its last one; a section with the same heading is replaced."""
    heading = text.splitlines()[0]
    if real and "not a measurement of a GPU" in text:
        raise SystemExit("gpu_day.sh: these results are of a simulator: they do not go into the page")
    parts = ("\n" + page).split("\n## ")
    kept = [part for part in parts if f"## {part.splitlines()[0] if part else ''}" != heading]
    at = next((i for i, part in enumerate(kept) if f"## {part.splitlines()[0] if part else ''}" == BEFORE), len(kept))
    kept.insert(at, text.removeprefix("## ").rstrip() + "\n")
    return "\n## ".join(kept).removeprefix("\n")
