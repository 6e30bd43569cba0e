"""Checks that every folder of src and sim includes what the table of ARCHITECTURE.md says, and that the table has no circle.

A folder with rooms (`alloc/core`) has a row for each, and may include all of them itself. Every folder may include base, its own
headers and the public ones; one of sim also device's declarations of the APIs, and of src nothing else, whatever the table says.
Exit status 1 names each line that breaks this, each entry of the table that no file uses, and each circle.
"""

import pathlib
import re
import sys

root = pathlib.Path(__file__).resolve().parent.parent

SUFFIXES = (".c", ".h", ".cpp", ".py", ".js")
FILE_LINES = 500
LONG_FILE_LINES = 600  # the limit for tests and others that need no reason, and of programs beside the two houses
# Of src, sim and python.
LONG_FILES = {
    "python/neap/_estimate.py": "one report, filled step by step by hooks that share its state",
    "python/neap/_sources.py": "one interface, and each allocator behind it",
    "python/neap/_twins_attention.py": "one twin after the other",
    "python/neap/hunt.py": "one search",
    "python/neap/memory.py": "one function of torch.cuda.memory after the other",
    "python/neap/training.py": "one class, the one that users meet",
    "sim/driver/engine.c": "one machine: queues, waits and ends depend on each other",
    "sim/driver/graph.c": "one function of the driver after the other, over one table",
    "sim/driver/module.c": "one function of the driver after the other, over one table",
    "sim/driver/pool.c": "one function of the driver after the other, over one table",
    "sim/libraries/cudnn_layers.c": "one function of cuDNN after the other",
    "sim/libraries/cudnn_rnn.c": "one function of cuDNN after the other, and the layout of one buffer",
    "src/agent/attach.c": "the one instance: attaching, forks and the end share its state and its lock",
    "src/alloc/core/core.h": "the room's one header: what is in it refers to each other",
    "src/alloc/core/segment.c": "pages and their handles, by which each is kept whole",
    "src/analyze/fix.c": "one fix after the other",
    "src/analyze/run.c": "one pass over a recording",
    "src/analyze/step_model.c": "one step of a recording, taken apart in one pass",
    "src/cli/cmd_estimate.c": "the options of the verb that has most",
    "src/estimate/text.c": "one line of the report after the other",
    "src/estimate/view_mounts.c": "one sequence of mounts, in which an error undoes all before",
    "src/proto/page.c": "one format: its writer beside its reader",
    "src/series/spec.c": "one document, walked by tables",
    "src/torch/ipc.cpp": "one protocol: its writer beside its reader",
    "src/trace/build.c": "one struct that is filled",
    "src/trace/write_snapshot.c": "one format",
}


def table():
    """The rows of the table in ARCHITECTURE.md: | `folder` | `a`, `b` |"""
    allowed = {}
    text = (root / "ARCHITECTURE.md").read_text(encoding="utf-8")
    section = text.split("## What may include what", 1)[1].split("\n## ", 1)[0]
    for row in re.findall(r"^\| `([\w/]+)` \| (.*?) \|", section, re.M):
        allowed[row[0]] = set(re.findall(r"`([\w/]+)`", row[1]))
    return allowed


def folder_of(path, allowed):
    """ "alloc/core" of src/alloc/core/fit.c and of "alloc/core/core.h": as deep as the table's rows go."""
    parts = path.parts[1:] if path.parts[0] == "src" else path.parts
    deep = "/".join(parts[:2])
    return deep if deep in allowed or parts[0] == "sim" else parts[0]


def includes(path, allowed):
    """(line's number, folder, file) of each of our headers that is included with its folder."""
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        match = re.match(r'\s*#\s*include\s+"([\w.-]+/[^"]+)"', line)
        if match:
            yield number, folder_of(pathlib.PurePath(match[1]), allowed), match[1]


def is_declaration(folder, other, file):
    return folder.startswith("sim/") and other == "device" and re.search(r"_(api|functions|constants)\.h$", file)


def may_include(folder, other, allowed):
    if folder.startswith("sim/") and not other.startswith("sim/"):
        return False
    return other in allowed.get(folder, ()) or other.startswith(folder + "/")


def circle(allowed):
    """Folders that include each other in turn, the first one again at the end; [] where there are none."""
    done = set()

    def visit(folder, way):
        if folder in way:
            return way[way.index(folder) :] + [folder]
        found = []
        if folder not in done:
            rooms = {name for name in allowed if name.startswith(folder + "/")}
            for other in sorted(allowed.get(folder, set()) | rooms):
                found = found or visit(other, [*way, folder])
            done.add(folder)
        return found

    return next(filter(None, (visit(folder, []) for folder in sorted(allowed))), [])


def lengths():
    """The files that are too long, and the reasons that no file needs."""
    folders = ("src", "sim", "include", "python", "tests", "examples", "bench", "fuzz", "tools")
    for path in sorted(path for folder in folders for path in (root / folder).rglob("*") if path.suffix in SUFFIXES and path.is_file()):
        name = str(path.relative_to(root))
        count = len(path.read_text(encoding="utf-8").splitlines())
        ours = name.startswith(("src/", "sim/", "python/")) and not name.startswith("sim/tests/")
        if not ours and path.suffix == ".py":
            continue
        most = LONG_FILE_LINES if name in LONG_FILES or not ours else FILE_LINES
        if count > most:
            yield f"{name}: {count} lines; at most {most}: what is its second idea?"
        elif name in LONG_FILES and count <= FILE_LINES:
            yield f"{name}: {count} lines: it needs no reason any more"
    yield from (f"{name}: has a reason to be long, and is not there" for name in LONG_FILES if not (root / name).exists())


def main():
    allowed = table()
    unused = {(folder, other) for folder, others in allowed.items() for other in others}
    bad = set()
    for path in sorted([*(root / "src").rglob("*.[ch]"), *(root / "sim").rglob("*.[ch]")]):
        place = path.relative_to(root)
        folder = folder_of(place, allowed)
        if folder == "sim/tests":
            continue
        if folder not in allowed and folder != "base":
            bad.add(f"{folder}: not in the table")
        for number, other, file in includes(path, allowed):
            unused.discard((folder, other))
            if other in ("neap", "base", folder) or is_declaration(folder, other, file) or may_include(folder, other, allowed):
                continue
            bad.add(f"{place}:{number}: {folder} may not include {other}")
    bad |= {f"ARCHITECTURE.md: {folder} does not include {other}" for folder, other in unused}
    if found := circle(allowed):
        bad.add("ARCHITECTURE.md: a circle: " + " includes ".join(found))
    bad |= set(lengths())
    print(*sorted(bad), sep="\n", end="\n" if bad else "")
    return 1 if bad else 0


sys.exit(main())
