#!/usr/bin/env python3
"""manual.py NEAP FOLDER: writes neap.1 and neap-COMMAND.1 into FOLDER, from what `neap help` and `neap help COMMAND` print.

    neap COMMAND: SUMMARY            NAME
    Usage: neap COMMAND ...          SYNOPSIS
    paragraphs, indented examples    DESCRIPTION   (filled again; a line that ended early ends here too)
    Options:                         OPTIONS
      --name VALUE   text
"""
import pathlib
import re
import subprocess
import sys

WIDTH = 100  # of the help: a line ends early when the next one's first word would have fit


def printed(neap: str, *words: str) -> list[str]:
    command = subprocess.run([neap, *words], check=True, capture_output=True, encoding="ascii")
    return command.stdout.splitlines()


def escape(text: str) -> str:
    text = text.replace("\\", "\\e").replace("-", "\\-")
    return "\\&" + text if text.startswith((".", "'")) else text


def description(lines: list[str]) -> list[str]:
    """Fills paragraphs, and leaves indented lines as they are."""
    page: list[str] = []
    before = ""
    for line in lines:
        example = line.startswith(" ")
        was_example = before.startswith(" ")
        if was_example and not example:
            page += [".fi", ".RE"]
        if not line:
            page.append(".PP")
        elif example and not was_example:
            page += [".RS", ".nf"]
        elif not example and before and len(before) + 1 + len(line.split(" ")[0]) <= WIDTH:
            page.append(".br")
        if line:
            page.append(escape(line[2:] if example else line))
        before = line
    return page + ([".fi", ".RE"] if before.startswith(" ") else [])


def definitions(lines: list[str]) -> list[str]:
    """Indented lines "  NAME  text", whose text may continue in lines that are indented further."""
    page: list[str] = []
    for line in lines:
        match = re.match(r"  (\S.*?)(?:  +(.*))?$", line)
        if match:
            page += [".TP", f"\\fB{escape(match[1])}\\fR"] + ([escape(match[2])] if match[2] else [])
        else:
            page.append(escape(line.strip()))
    return page


def page_of(name: str, summary: str, version: str) -> list[str]:
    return [f'.TH {name.upper()} 1 "" "neap {version}" "neap"', ".SH NAME", f"{escape(name)} \\- {escape(summary)}",
            ".SH SYNOPSIS"]


def command_page(neap: str, name: str, version: str) -> list[str]:
    lines = printed(neap, "help", name)
    options = lines.index("Options:")
    usage_end = lines.index("", 2)
    usage = " ".join(line.strip() for line in lines[2:usage_end]).removeprefix("Usage: ")
    page = page_of(f"neap-{name}", lines[0].split(": ", 1)[1], version) + [escape(usage)]
    if usage_end < options:
        page += [".SH DESCRIPTION"] + description(lines[usage_end + 1:options - 1])
    return page + [".SH OPTIONS"] + definitions(lines[options + 1:]) + [".SH SEE ALSO", ".BR neap (1)"]


def main_page(lines: list[str], names: list[str], version: str) -> list[str]:
    commands = lines.index("Commands:")
    options = lines.index("Options of every command:")
    after = lines.index("", options)
    page = page_of("neap", lines[0].removeprefix("neap ").rstrip("."), version)
    page += [escape(lines[2].removeprefix("Usage: ")), ".SH COMMANDS"] + definitions(lines[commands + 1:options - 1])
    page += [".SH OPTIONS"] + definitions(lines[options + 1:after]) + [".SH NOTES"] + description(lines[after + 1:])
    others = [f".BR neap\\-{name} (1)" for name in names]
    return page + [".SH SEE ALSO"] + [f"{other}," for other in others[:-1]] + others[-1:]


def main() -> int:
    neap = sys.argv[1]
    folder = pathlib.Path(sys.argv[2])
    version = printed(neap, "--version")[0].split(" ")[1]
    lines = printed(neap, "help")
    commands = lines[lines.index("Commands:") + 1:]
    names = [line.split()[0] for line in commands[:commands.index("")]]
    pages = {f"neap-{name}.1": command_page(neap, name, version) for name in names}
    pages["neap.1"] = main_page(lines, names, version)
    for file, page in pages.items():
        (folder / file).write_text("\n".join(page) + "\n", encoding="ascii")
    return 0


if __name__ == "__main__":
    sys.exit(main())
