"""Compares what a test showed with its expected file (command.bash): expect.py SHOWN EXPECTED DIR WORLD PIDS [RULE...]

What differs between two runs is replaced; nothing else is. In this order:

  the test's folder, world, simulator    DIR, WORLD, SIM
  a run's ID                             RUN-ID
  a time of day                          YYYY-MM-DD hh:mm:ss
  a GPU's UUID                           GPU-UUID1, GPU-UUID2: in the order in which they are first shown
  a process ID                           PID1, PID2, likewise: after "process", "PID", "pid" and "parent" in JSON, "record.", and
                                         the test's targets everywhere
  how long something took                TIME: after "in", "after", "took", "waited" or a comma at a line's end, and in a column,
                                         where mm:ss is one too; a limit ("within 100 ms") stays
  a count of nanoseconds in JSON         NS, unless it is 0
  the user, the control group            USER, "contained by GROUP"
  the version                            VERSION
  the widths of a series' table          two spaces between its columns, each row in one line

In a column the text keeps its width, unless it is the last on its line. A RULE is PATTERN/REPLACEMENT, for re.sub: a
replacement for one test alone. With NEAP_UPDATE_EXPECTED=1 the expected file is written instead.
"""

import difflib
import os
import pathlib
import pwd
import re
import sys

DURATION = r"\d+(?:\.\d+)? (?:ns|us|ms|s|m \d+ s|m|h \d+ m|h)\b"


def numbered(name: str, text: str, pattern: str) -> str:
    """Replaces the text that group 2 of the pattern matches by name1, name2...; spaces in group 1 shrink or grow."""
    seen: dict[str, str] = {}

    def replace(match: re.Match[str]) -> str:
        before = match[1]
        found = match[2]
        new = seen.setdefault(found, f"{name}{len(seen) + 1}")
        if before.startswith("  "):
            return new.rjust(len(before) + len(found))
        return before + new

    return re.sub(pattern, replace, text, flags=re.MULTILINE)


def column(pattern: str, name: str, text: str) -> str:
    """Replaces a measured figure in a column, which keeps its width, right-aligned."""
    return re.sub(rf"(?<=  )( *{pattern})(?=  |$)", lambda match: name.rjust(len(match[1])), text, flags=re.MULTILINE)


def processes(text: str, targets: str) -> str:
    """Names process IDs."""
    named = re.findall(r"(?:\b[Pp]rocess |\bPID |\"(?:pid|parent)\": ?|\brecord\.)(\d{2,})\b", text)
    either = "|".join(sorted({*named, *targets.split()})) or "(?!)"
    return numbered("PID", text, rf"( *)(?<![\w:-])(?<!\d\.)({either})\b(?! ?(?:[KMG]i)?B\b|[.:-]\d)")


def user(text: str) -> str:
    """Names the user, whose name sets the width of a column."""
    name = pwd.getpwuid(os.getuid()).pw_name
    text = re.sub("user" + " " * (len(name) - 4) + "( +run time)", r"user\1", text)
    text = re.sub(rf" {name.ljust(4)}  (?! *run time)", " USER  ", text)
    return re.sub(rf'"{name}"(?!:)|\b{name}(?=/\w+\(PID)', lambda match: match[0].replace(name, "USER"), text)


def rows_of(match: re.Match[str]) -> str:
    """A series' table with its wrapped rungs in one line, and two spaces between its columns."""
    header, *lines = match[0].split("\n")
    start = header.find("RUNG")
    end = header.find("LEAK")
    rows = [header]
    rungs = ""
    for line in reversed(lines if start < end else []):
        rungs = f"{line[start:end].strip()} {rungs}".strip()
        if line[:start].strip():
            rows.insert(1, f"{line[:start]}  {rungs}  {line[end:]}")
            rungs = ""
    return "\n".join(re.sub(r" {2,}", "  ", line) for line in (rows if start < end else [header, *lines]))


def table(text: str) -> str:
    """Removes the widths of a series' times: they set the widths of its columns and break its rungs."""
    return re.sub(r"^NAME  .*OUTCOME.*(?:\n.+)*", rows_of, text, flags=re.MULTILINE)


def normalise(text: str, folder: str, world: str, targets: str, rules: list[str]) -> str:
    """Replaces what the module's text lists."""
    text = text.replace(folder, "DIR").replace(world, "WORLD").replace(os.environ["NEAP_SIM_PATH"], "SIM")
    text = re.sub(r"^((?:2> )?(?:  )?contained by +).*", r"\1GROUP", text, flags=re.MULTILINE)
    text = re.sub(r'("containment": ?)"[^"]*"', r'\1"GROUP"', text)
    text = re.sub(r"\b20\d{6}-\d{6}-\d+-\d+\b( {2,})?",
                  lambda match: "RUN-ID".ljust(len(match[0])) if match[1] else "RUN-ID", text)
    text = re.sub(r"\b20\d\d-\d\d-\d\d([ T])\d\d:\d\d:\d\d", r"YYYY-MM-DD\1hh:mm:ss", text)
    text = re.sub(r"\b20\d\d-\d\d-\d\d([ T])\d\d:\d\d", r"YYYY-MM-DD\1hh:mm", text)
    text = re.sub(r"(hh:mm:ss),\d{3} neap ", r"\1 neap ", text)
    text = numbered("GPU-UUID", text, r"()(GPU-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})")
    text = processes(text, targets)
    text = re.sub(rf"\b(in |after |took |waited +){DURATION}", r"\1TIME", text)
    text = re.sub(rf", {DURATION}$", ", TIME", text, flags=re.MULTILINE)
    text = re.sub(rf"(?<=  ){DURATION}$", "TIME", text, flags=re.MULTILINE)
    text = column(DURATION, "TIME", text)
    text = column(r"(?:\d+:)?\d\d:\d\d", "mm:ss", text)
    text = re.sub(r'("(?:\w+_ns|nanoseconds)": ?)[1-9]\d*', r"\1NS", text)
    text = re.sub(r"\bneap \d+\.\d+\.\d+\b", "neap VERSION", text)
    text = table(user(text))
    for rule in rules:
        pattern, _, replacement = rule.rpartition("/")
        text, count = re.subn(pattern, replacement, text, flags=re.MULTILINE)
        if not count:
            sys.exit(f"{rule}: nothing to replace in:\n{text}")
    return re.sub(r"[ \t]+$", "", text, flags=re.MULTILINE)


def main() -> None:
    """Compares or writes."""
    shown, expected, folder, world, targets, *rules = sys.argv[1:]
    text = normalise(pathlib.Path(shown).read_text(errors="surrogateescape"), folder, world, targets, rules)
    file = pathlib.Path(expected)
    before = file.read_text(errors="surrogateescape") if file.exists() else ""
    if text == before:
        return
    if os.environ.get("NEAP_UPDATE_EXPECTED"):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, errors="surrogateescape")
        return
    name = "tests/" + expected.split("/tests/")[-1]
    diff = difflib.unified_diff(before.splitlines(), text.splitlines(), name, "shown", lineterm="")
    sys.stdout.writelines(f"{line}\n" for line in diff)
    print(f"If this is right: tests/update_expected.sh {pathlib.Path(name).parent.name}")
    sys.exit(1)


main()
