#!/usr/bin/env python3
"""embed_help.py OUTPUT NAME=PATH...: writes a C file with each text of src/cli/help as a terminated array NAME, one line
per paragraph (see help_text.py); the command wraps them for the terminal.
"""
import pathlib
import sys

import help_text


def main() -> int:
    output = sys.argv[1]
    pairs = [argument.split("=", 1) for argument in sys.argv[2:]]
    with open(output, "w", encoding="ascii") as out:
        for name, path in pairs:
            data = "\n".join(help_text.lines(pathlib.Path(path))).encode("ascii")
            out.write(f"extern const char {name}[];\nconst char {name}[] = {{\n")
            for start in range(0, len(data), 32):
                out.write(",".join(map(str, data[start:start + 32])) + ",\n")
            out.write("0};\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
