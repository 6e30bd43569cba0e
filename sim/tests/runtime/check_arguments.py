"""Checks the stand-ins' tables and C against CUDA's headers, where they are installed.

    check_arguments.py SOURCE_FOLDER [INCLUDE_FOLDER]

The tables record which argument of a function is a stream, a size, a status; the C defines functions with CUDA's
signatures but other types. A miscounted argument breaks either silently. For each function that a header declares,
each argument named by a rule must be of the rule's kind, and a function in C must take as many arguments as the
declared one (it may leave out the last ones), each as wide, with pointers in the same places. Exit status 77: no headers
(in INCLUDE_FOLDER, NEAP_TEST_CUDA_INCLUDE or /usr/local/cuda/include).
"""

import os
import pathlib
import re
import subprocess
import sys

HEADERS = {
    "cublas": ["cublas_v2.h", "cublasXt.h"],
    "cublaslt": ["cublasLt.h"],
    "cudnn": ["cudnn.h"],
    "cufft": ["cufft.h", "cufftXt.h"],
    "cufile": ["cufile.h"],
    "cupti": ["cupti.h"],
    "curand": ["curand.h"],
    "cusolver": ["cusolverDn.h", "cusolverSp.h", "cusolverRf.h"],
    "cusolvermg": ["cusolverMg.h"],
    "cusparse": ["cusparse.h"],
    "cusparselt": ["cusparseLt.h"],
    "nccl": ["nccl.h"],
    "nvjitlink": ["nvJitLink.h"],
    "nvrtc": ["nvrtc.h"],
    "nvtoolsext": ["nvtx3/nvToolsExt.h"],
}
WIDTHS = {"char": 4, "short": 4, "int": 4, "long": 8, "_Bool": 4, "unsigned": 4, "signed": 4}  # as passed
SIZES = {"char": 1, "short": 2, "int": 4, "long": 8, "float": 4, "double": 8, "_Bool": 1, "unsigned": 4, "signed": 4}


def preprocess(text, includes):
    command = ["cc", "-E", "-P", "-x", "c", "-std=gnu17", *[f"-I{path}" for path in includes], "-"]
    return subprocess.run(command, input=text, capture_output=True, text=True, check=True).stdout


def matching(text, at):
    """The index of the parenthesis that closes the one at `at`."""
    depth = 0
    for place in range(at, len(text)):
        depth += (text[place] == "(") - (text[place] == ")")
        if depth == 0:
            return place
    return len(text)


def without_attributes(text):
    while match := re.search(r"__attribute__\s*\(|__declspec\s*\(|_Static_assert\s*\(", text):
        text = text[: match.start()] + text[matching(text, match.end() - 1) + 1 :]
    return text


def split(arguments):
    parts = [""]
    depth = 0
    for sign in arguments:
        depth += (sign in "([") - (sign in ")]")
        if sign == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += sign
    parts = [" ".join(part.split()) for part in parts]
    return [] if parts in ([""], ["void"]) else parts


class Header:
    """The declarations (or, with `end` = "{", the definitions) of functions in a C text."""

    def __init__(self, text, names, end=";"):
        self.text = text
        self.functions = {}
        self.types = {}
        names = set(names)
        for match in re.finditer(r"\b(\w+)\s*\(", text):
            if match[1] in names and match[1] not in self.functions:
                close = matching(text, match.end() - 1)
                if text[close + 1 : close + 9].lstrip()[:1] == end:
                    self.functions[match[1]] = split(text[match.end() : close])

    def base(self, kind):
        """A type's name without what stands for it: int32_t becomes int, an enumeration too. "*" is a pointer."""
        if kind not in self.types:
            self.types[kind] = self.find(kind)
        return self.types[kind]

    def find(self, kind):
        words = [word for word in kind.split() if word not in ("const", "volatile", "enum", "restrict", "__restrict")]
        if kind.startswith("enum") or (words and words[0] == "struct"):
            return "int" if kind.startswith("enum") else "struct"
        for word in ("double", "float", "long", "short", "char", "_Bool", "int", "unsigned", "signed", "void"):
            if word in words:
                return word
        name = words[0] if words else ""
        match = re.search(rf"\btypedef\s+([^;{{}}()]*?[\s*]){re.escape(name)}\s*;", self.text)
        if match:
            return "*" if "*" in match[1] else self.base(" ".join(match[1].split()))
        if re.search(rf"\btypedef\s+enum[^;{{]*\{{[^}}]*\}}\s*{re.escape(name)}\s*;", self.text):
            return "int"
        if re.search(rf"\(\s*\*\s*{re.escape(name)}\s*\)\s*\(", self.text):
            return "*"
        return "struct"

    def kind_of(self, argument):
        """(how many levels of pointers, base type)"""
        stars = argument.count("*") + argument.count("[")
        if "(" in argument:
            return 1, "void"
        words = re.sub(r"\[.*|\*", " ", argument).split()
        plain = {"const", "struct", "enum", "unsigned", "signed", "long", "short", "volatile", "union"}
        if len([word for word in words if word not in plain]) > 1 or (
                len(words) > 1 and words[-1] not in plain | {"int", "char", "double", "float"}):
            words = words[:-1]  # the argument's name
        base = self.base(" ".join(words))
        return (stars + 1, "void") if base == "*" else (stars, base)


def passed(kind):
    """How an argument travels: p pointer, i4, i8, f."""
    stars, base = kind
    if stars:
        return "p"
    if base in ("float", "double", "struct"):  # the structs that these functions take by value are complex numbers
        return "f"
    return f"i{WIDTHS.get(base, 4)}"


def size_pointed(kind):
    """Bytes of the target of a pointer; None: unknown."""
    stars, base = kind
    return 8 if stars > 1 else SIZES.get(base) if stars == 1 else 0


def faults_of_rule(rule, kinds, arguments):
    """The errors in the arguments named by the rule."""
    if rule.last() >= len(kinds):
        yield f"{rule.name}={rule.argument}: the function has {len(kinds)} such arguments"
        return
    kind = kinds[rule.argument]
    text = arguments[rule.argument]
    if rule.parts is not None and passed(kinds[rule.parts])[0] != "i":
        yield f"{rule.name}: argument {rule.parts} is no number: {arguments[rule.parts]}"
    if rule.name == "stream" and not re.search(r"stream", text, re.I):
        yield f"argument {rule.argument} is no stream: {text}"
    if rule.name in ("zero", "result", "forget", "create") and (kind[0] == 0 or re.match(r"const [^*]*\*[^*]*$", text)):
        yield f"{rule.name}: argument {rule.argument} is no output: {text}"
    if rule.name == "destroy" and kind[0] == 0:
        yield f"destroy: argument {rule.argument} is no pointer: {text}"
    if rule.name in ("zero", "result", "forget", "size4", "size8") and size_pointed(kind) not in (None, rule.bytes):
        many = rule.name in ("zero", "result") and size_pointed(kind) and rule.bytes % size_pointed(kind) == 0
        if not many:
            yield f"{rule.name}: argument {rule.argument} has {size_pointed(kind)} bytes: {text}"
    for number in rule.numbers:
        if number != "-" and (kinds[int(number.rstrip('p'))][0] > 0) != number.endswith("p"):
            yield f"{rule.name}: argument {number} is of another kind: {arguments[int(number.rstrip('p'))]}"


def check(name, table, folder, includes, maker):
    _, functions = maker.parse_table(table)
    headers = "".join(f"#include <{header}>\n" for header in HEADERS[name])
    text = preprocess("#include <stddef.h>\n#include <stdbool.h>\n" + headers, includes)
    declared = Header(without_attributes(text), [function.name for function in functions])
    sources = [path for path in folder.glob("*.c") if re.fullmatch(rf"{name}(_\w+)?", path.stem)]
    written = [function.name for function in functions if function.answer == "written"]
    defined = {}
    for path in sources:
        root = folder.parents[1]
        ours = [root, root / "src", root / "include"]
        text = preprocess(f'#define STAND_IN_MAJOR 13\n#include "{path}"\n', ours)
        found = Header(without_attributes(text), written, "{")
        defined.update({key: [passed(found.kind_of(part)) for part in value] for key, value in found.functions.items()})
    code = "".join(path.read_text(encoding="utf-8") for path in sources)
    for function in functions:
        for kind in {rule.kind for rule in function.rules if rule.kind and f'"{rule.kind}"' not in code}:
            yield f"{function.name}: the C has no size of kind {kind}"
        if function.name not in declared.functions:
            continue
        kinds = [declared.kind_of(argument) for argument in declared.functions[function.name]]
        if function.answer == "written":
            want = [passed(kind) for kind in kinds]
            if function.name not in defined:
                yield f"{function.name}: written, but not found in {name}*.c"
            elif defined[function.name] != want[: len(defined[function.name])]:
                yield f"{function.name}: declared as {want}, written as {defined[function.name]}"
            continue
        countable = [(kind, text) for kind, text in zip(kinds, declared.functions[function.name]) if passed(kind) != "f"]
        for rule in function.rules:
            for fault in faults_of_rule(rule, [kind for kind, _ in countable], [text for _, text in countable]):
                yield f"{function.name}: {fault}"


def main():
    source = pathlib.Path(sys.argv[1])
    include = pathlib.Path(sys.argv[2] if len(sys.argv) > 2 else
                           os.environ.get("NEAP_TEST_CUDA_INCLUDE") or "/usr/local/cuda/include")
    sys.path.insert(0, str(source / "tools"))
    sys.dont_write_bytecode = True
    import make_stand_in

    folder = source / "sim" / "libraries"
    faults = []
    count = 0
    for table in sorted(folder.glob("*.txt")):
        if all((include / header).exists() for header in HEADERS.get(table.stem, ["(none)"])):
            faults += check(table.stem, table, folder, [include], make_stand_in)
            count += 1
        else:
            print(f"{table.stem}: no header")
    print("\n".join(faults), end="\n" if faults else "")
    if faults:
        return 1
    return 0 if count else 77


sys.exit(main())
