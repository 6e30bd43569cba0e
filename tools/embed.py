#!/usr/bin/env python3
"""embed.py OUTPUT NAME=PATH...: writes a C file with each file's bytes as a terminated array NAME, its NAME_length, and its
NAME_sha256, by which a content policy allows a script or style of exactly these bytes.

What goes into a page's <script> or <style> must not be able to end it, and must not make a browser fetch anything: a
closing tag is refused, comments that name a source map are dropped.
"""
import base64
import hashlib
import re
import sys


def main() -> int:
    output = sys.argv[1]
    pairs = [argument.split("=", 1) for argument in sys.argv[2:]]
    with open(output, "w", encoding="ascii") as out:
        out.write("#include \"report/embedded.h\"\n")
        for name, path in pairs:
            with open(path, "rb") as source:
                data = source.read()
            data = re.sub(rb"(?m)^//# sourceMappingURL=.*$|/\*# sourceMappingURL=.*?\*/", b"", data).strip() + b"\n"
            if re.search(rb"</(script|style)|<!--", data, re.IGNORECASE):
                print(f"{path}: holds a closing tag: cannot be embedded in a page", file=sys.stderr)
                return 1
            out.write(f"\nconst char {name}[] = {{\n")
            for start in range(0, len(data), 32):
                # Values above 127 do not fit a plain char without a warning where char is signed.
                values = (byte - 256 if byte > 127 else byte for byte in data[start:start + 32])
                out.write(",".join(map(str, values)) + ",\n")
            out.write(f"0}};\nconst size_t {name}_length = sizeof({name}) - 1;\n")
            digest = base64.b64encode(hashlib.sha256(data).digest()).decode("ascii")
            out.write(f"const char {name}_sha256[] = \"{digest}\";\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
