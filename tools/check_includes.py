"""Checks that every folder of src includes only the folders it may (the table of ARCHITECTURE.md).

Every folder may include base, its own headers and the public headers. Exit status 1 names each line that breaks it.
"""

import pathlib
import re
import sys

root = pathlib.Path(__file__).resolve().parent.parent


def table():
    """The table's rows in ARCHITECTURE.md: | `folder` | `a`, `b` |"""
    allowed = {}
    text = (root / "ARCHITECTURE.md").read_text(encoding="utf-8")
    section = text.split("## What may include what", 1)[1].split("\n## ", 1)[0]
    for row in re.findall(r"^\| `(\w+)` \| (.*?) \|", section, re.M):
        allowed[row[0]] = set(re.findall(r"`(\w+)`", row[1]))
    return allowed


def main():
    allowed = table()
    folders = {path.name for path in (root / "src").iterdir() if path.is_dir()}
    bad = [f"{folder}: not in the table" for folder in sorted(folders - set(allowed) - {"base"})]
    for path in sorted((root / "src").rglob("*.[ch]")):
        folder = path.relative_to(root / "src").parts[0]
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            match = re.match(r'\s*#\s*include\s+"(\w+)/([^"]+)"', line)
            if not match or match[1] in ("neap", "base", folder):
                continue
            if folder in ("sim", "runtime") and match[1] == "device" and re.search(r"_(api|functions|constants)\.h$", match[2]):
                continue
            if match[1] not in allowed.get(folder, set()):
                bad.append(f"{path.relative_to(root)}:{number}: {folder} may not include {match[1]}")
    print("\n".join(bad), end="\n" if bad else "")
    return 1 if bad else 0


sys.exit(main())
