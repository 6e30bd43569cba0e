#!/usr/bin/env python3
"""make_abi.py OUTPUT HEADER...: writes libneap's public declarations as a Python module for ctypes: python/neap/_abi.py.

    enum neap_cleanup_reason   class CleanupReason(enum.IntEnum), its members without the prefix that all have
    struct neap_event_oom      class EventOom(ctypes.Structure); events of one kind have that kind
    NEAP_API functions         FUNCTIONS: name -> (result, arguments)
    #define NEAP_NAME number   NAME = number

The headers are read as they are written here: no conditions but those for C++, one declaration for each semicolon. What does
not read is an error of the build, and tests/python/test_abi.py compares every size, offset, value and argument with what the C
compiler makes of the headers. A pointer to a struct that the headers keep to themselves is a void pointer.
"""

import re
import sys
from pathlib import Path

SIMPLE = {"void": "None", "bool": "c.c_bool", "char": "c.c_char", "unsigned char": "c.c_ubyte", "int": "c.c_int", "unsigned": "c.c_uint",
          "double": "c.c_double", "size_t": "c.c_size_t", "ptrdiff_t": "c.c_ssize_t"}  # fmt: skip
SIMPLE |= {f"{sign}int{bits}_t": f"c.c_{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)}
EVENT = "neap_event_"


def camel(name):
    return "".join(word.capitalize() for word in name.removeprefix("neap_").split("_"))


def closing(text, start):
    """The index of the brace or parenthesis that closes the one at `start`."""
    depth = 0
    for index in range(start, len(text)):
        depth += (text[index] in "{(") - (text[index] in "})")
        if not depth:
            return index
    raise SystemExit(f"make_abi.py: nothing closes: {text[start:start + 60]!r}")


def split(text, separator):
    """The parts between separators outside all braces and parentheses, without empty ones."""
    parts = [""]
    depth = 0
    for letter in text:
        depth += (letter in "{(") - (letter in "})")
        if letter == separator and not depth:
            parts.append("")
        else:
            parts[-1] += letter
    return [part.strip() for part in parts if part.strip()]


class Headers:
    def __init__(self, paths):
        self.numbers = {}
        text = "\n".join(Path(path).read_text(encoding="utf-8") for path in paths)
        text = re.sub(r"/\*.*?\*/", " ", text, flags=re.S)
        text = re.sub(r"^#ifdef __cplusplus$.*?^#endif$", "", text, flags=re.S | re.M)
        for name, value in re.findall(r"^#define NEAP_(\w+)\s+(0x[0-9a-fA-F]+|\d+)[uUlL]*\s*$", text, re.M):
            self.numbers["NEAP_" + name] = int(value, 0)
        self.kinds = dict(re.findall(r"\bONE\((\w+), NEAP_EVENT_(\w+)\)", text))
        text = re.sub(r"^[ \t]*#(?:[^\n\\]|\\.|\\\n)*", "", text, flags=re.M)
        self.text = self.without_bodies(text)
        self.enums = {name: self.enum(body) for name, body in re.findall(r"\benum (neap_\w+) \{([^}]*)\}", self.text)}
        self.structs = {}
        for match in re.finditer(r"\bstruct (neap_\w+) \{", self.text):
            body = self.text[match.end():closing(self.text, match.end() - 1)]
            self.structs[match[1]] = None  # its own members may name it
            self.structs[match[1]] = [field for part in split(body, ";") for field in self.fields(part)]
        functions = re.findall(r"\bNEAP_API ([^;]*);", self.text)
        self.functions = dict(self.function(" ".join(function.split())) for function in functions)

    @staticmethod
    def without_bodies(text):
        """Inline functions are not in the library."""
        while match := re.search(r"\bstatic inline[^{;]*\{", text):
            text = text[:match.start()] + text[closing(text, match.end() - 1) + 1:]
        return text

    def number(self, text):
        """The number of an enum's member, or of an array's length."""
        sum_or_shift = re.fullmatch(r"(\w+) (<<|\+) (\w+)", text)
        if sum_or_shift:
            left = self.number(sum_or_shift[1])
            right = self.number(sum_or_shift[3])
            return left << right if sum_or_shift[2] == "<<" else left + right
        return self.numbers[text] if text in self.numbers else int(text.rstrip("uUlL"), 0)

    def enum(self, body):
        value = -1
        members = {}
        for part in split(body, ","):
            name, _, given = part.partition("=")
            value = self.number(given.strip()) if given else value + 1
            members[name.strip()] = self.numbers[name.strip()] = value
        return members

    def type(self, text, stars):
        """The type in ctypes; `text` comes without const and stars."""
        if text.startswith("enum "):
            simple = "c.c_int"
        elif text.startswith("struct "):
            name = text.removeprefix("struct ")
            simple = camel(name) if name in self.structs else None
        else:
            simple = SIMPLE.get(text)
        if not stars:
            if simple is None:
                raise SystemExit(f"make_abi.py: unknown type: {text!r}")
            return simple
        if text in ("char", "unsigned char"):  # a text, or bytes
            inner = "c.c_char_p"
        elif simple in (None, "None") or (stars > 1 and text.startswith("struct ")):
            inner = "c.c_void_p"
        else:
            inner = f"c.POINTER({simple})"
        return inner if stars == 1 else f"c.POINTER({inner})"

    def callback(self, text):
        """The type of `RESULT (*name)(ARGUMENTS)`; None: it is something else."""
        match = re.fullmatch(r"([^(]*)\(\*\w*\)\((.*)\)", text)
        if not match:
            return None
        types = [self.type(*self.base(match[1])), *(self.argument(part) for part in split(match[2], ",") if part != "void")]
        return f"c.CFUNCTYPE({', '.join(types)})"

    @staticmethod
    def base(text):
        plain = re.sub(r"\bconst\b", " ", text)
        return " ".join(plain.replace("*", " ").split()), plain.count("*")

    def fields(self, part):
        """(name, type) of each member that one declaration of a struct makes."""
        part = " ".join(part.split())
        if part.startswith("union {"):
            yield from self.fields(split(part[len("union {"):closing(part, len("union "))], ";")[0])
            return
        called = self.callback(part)
        if called:
            yield re.search(r"\(\*(\w+)\)", part)[1], called
            return
        declarator = r"(\**)(\w+)((?:\[[^]]+\])*)"
        first, *others = split(part, ",")
        matches = [re.fullmatch(r"(.*?)" + declarator, first), *(re.fullmatch("()" + declarator, other) for other in others)]
        if None in matches:
            raise SystemExit(f"make_abi.py: not understood: {part!r}")
        base, inner_stars = self.base(matches[0][1])
        for _, stars, name, lengths in (match.groups() for match in matches):
            kind = self.type(base, inner_stars + len(stars))
            for length in reversed(re.findall(r"\[([^]]+)\]", lengths)):
                kind = f"({kind} * {self.number(length)})"
            yield name, kind

    def argument(self, text):
        if "(" in text or "callback" in text or "throw" in text:  # a function: the caller passes its address
            return "c.c_void_p"
        array = text.count("[")
        base, stars = self.base(re.sub(r"(\[\w*\])+$", "", text))
        if base not in SIMPLE:
            base = re.fullmatch(r"((?:enum |struct |unsigned )?\w+)(?: \w+)?", base)[1]
        return self.type(base, stars + array)

    def function(self, text):
        match = re.match(r"(.*?)(\w+)\((.*)\)$", text)
        arguments = [self.argument(part) for part in split(match[3], ",") if part != "void"]
        return match[2], (self.type(*self.base(match[1])), arguments)


def prefix_of(members):
    """The common beginning of all names, up to an underscore."""
    words = [name.split("_") for name in members]
    same = 1
    while all(len(word) > same + 1 and word[same] == words[0][same] for word in words):
        same += 1
    return "_".join(words[0][:same]) + "_"


def lines(headers):
    yield '"""libneap\'s declarations for ctypes, made from include/neap/*.h by tools/make_abi.py: data only."""'
    yield "from __future__ import annotations\n\nimport ctypes as c\nimport enum\nfrom typing import Any, ClassVar\n"
    for name, value in headers.numbers.items():
        if not any(name in members for members in headers.enums.values()):
            yield f"{name.removeprefix('NEAP_')} = {value}"
    for name, members in headers.enums.items():
        yield f'\n\nclass {camel(name)}(enum.IntEnum):\n    """enum {name}"""\n'
        for member, value in members.items():
            yield f"    {member.removeprefix(prefix_of(members))} = {value}"
    yield '\n\nclass EventPayload(c.Structure):\n    """What an event of one kind says."""\n\n    kind: ClassVar[EventKind]'
    for name, fields in headers.structs.items():
        kind = headers.kinds.get(name.removeprefix(EVENT)) if name.startswith(EVENT) else None
        yield f'\n\nclass {camel(name)}({"EventPayload" if kind else "c.Structure"}):\n    """struct {name}"""\n'
        if kind:
            yield f"    kind = EventKind.{kind}"
        yield "    _fields_ = [" + ", ".join(f'("{field}", {kind})' for field, kind in fields) + "]"
    yield "\n# C name: class, and, of an enum, what all members begin with there."
    yield "STRUCTS = {" + ", ".join(f'"{name}": {camel(name)}' for name in headers.structs) + "}"
    yield "ENUMS = {" + ", ".join(f'"{name}": ({camel(name)}, "{prefix_of(m)}")' for name, m in headers.enums.items()) + "}"
    yield "\nFUNCTIONS: dict[str, tuple[Any, tuple[Any, ...]]] = {"
    for name, (result, arguments) in headers.functions.items():
        yield f'    "{name}": ({result}, ({"".join(argument + ", " for argument in arguments)})),'
    yield "}"


def main():
    output, *paths = sys.argv[1:]
    Path(output).write_text("\n".join(lines(Headers(paths))) + "\n", encoding="utf-8")


main()
