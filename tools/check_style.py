"""Checks what every C file keeps to (CONTRIBUTING.md, "Style"): the formatter's layout, comments that end by column 118, `sizeof x`
and `if (status)`, functions of at most 70 lines and of at most five inputs (the length of files: tools/check_includes.py). Of Python
it checks what ruff has no rule for (the rest: pyproject.toml): no values packed into one assignment, as in `a, b = 1, 2`. A swap is
allowed, and so is a call's result.

    check_style.py [FILE...]      by default every .c, .h and .py that git knows

An input is a parameter that is neither the object (the first one that is a pointer to a struct), nor an output (`ret_...`), nor
`err`. What implements somebody else's interface (CUDA's, in sim) has as many as that says.

Exit status 1 names each place. Without clang-format, the layout is not checked, and a line says so.
"""

import ast
import pathlib
import re
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
COLUMNS = 118  # the formatter leaves comments alone: it would break tables and pictures
FUNCTION_LINES = 70
INPUTS = 5
FOREIGN = ("sim/", "tests/live/failing_malloc.c")
# A table of words, of cases or of figures is as long as it has rows.
TABLE_ROWS = re.compile(r"^\s*(\{.*\},?|\".*\",?|case .*|return \".*\";|X\(.*|assert_\w+\(.*)$")


def known_files():
    listed = subprocess.run(["git", "ls-files", "*.c", "*.h", "*.py"], cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False)
    if listed.returncode == 0 and listed.stdout:
        return [name for name in listed.stdout.split() if (ROOT / name).exists()]
    folders = ("src", "sim", "include", "python", "tests", "examples", "bench", "fuzz", "tools")  # not a checkout: what was unpacked
    paths = (path for folder in folders for path in (ROOT / folder).rglob("*") if path.suffix in (".c", ".h", ".py"))
    return sorted(str(path.relative_to(ROOT)) for path in paths)


def layout(names):
    """The places that clang-format would change."""
    if not shutil.which("clang-format"):
        print("clang-format is not installed: the layout is not checked")
        return []
    checked = subprocess.run(["clang-format", "--dry-run", *names], cwd=ROOT, stderr=subprocess.PIPE, text=True, check=False)
    return [line.split(" [-W")[0] for line in checked.stderr.splitlines() if " warning: " in line]


def dialect(name, lines):
    for number, line in enumerate(lines, 1):
        code = re.sub(r'"(\\.|[^"\\])*"|/\*.*?(\*/|$)', '""', line)
        if re.search(r"\bif \(\w*status [!=]= NEAP_OK\)", code):
            yield f"{name}:{number}: write if (status) or if (!status)"
        for operand in re.findall(r"\bsizeof\((\*?\w+(?:->\w+|\.\w+|\[\w+\])+|\*\w+)\)", code):
            yield f"{name}:{number}: write sizeof {operand}"
        columns = len(line.expandtabs(8))
        if columns > COLUMNS and ("/*" in line or line.lstrip().startswith("*")):
            yield f"{name}:{number}: a comment that ends in column {columns}; at most {COLUMNS}"


def inputs(parameters):
    words = [" ".join(word.split()) for word in re.split(r",(?![^(]*\))", parameters)]
    if words and re.match(r"(const )?struct \w+ \*", words[0]):
        del words[0]
    return sum(1 for word in words if word != "void" and not re.search(r"\bret_\w+(\[\w*\])?$|\berr$", word))


def functions(name, lines):
    """The functions that are too long or have too many inputs."""
    start = None
    for number, line in enumerate(lines, 1):
        if line == "{":
            start = number
            head = []
            for above in reversed(lines[max(0, number - 12) : number - 1]):
                if not above or above[0] in "}#/":
                    break
                head.insert(0, above)
            match = re.search(r"(\w+)\((.*)\)\s*$", " ".join(head), re.S)
            foreign = name.startswith(FOREIGN) or (match and "struct MHD_Connection *" in match[2])  # libmicrohttpd's callback
            if match and not foreign and inputs(match[2]) > INPUTS:
                yield f"{name}:{number}: {match[1]} has {inputs(match[2])} inputs; at most {INPUTS}, else an options struct"
        elif line == "}" and start:
            body = [row for row in lines[start : number - 1] if not TABLE_ROWS.match(row)]
            if len(body) > FUNCTION_LINES:
                yield f"{name}:{start}: a function of {len(body)} lines; at most {FUNCTION_LINES}"
            start = None


def packed(name, tree):
    """Assignments of several written-out values to several names, if the values use none of the names."""
    for node in ast.walk(tree):
        if not (isinstance(node, ast.Assign) and isinstance(node.value, ast.Tuple) and isinstance(node.targets[0], ast.Tuple)):
            continue
        parts = node.targets[0].elts + node.value.elts
        places = (ast.Name, ast.Attribute, ast.Subscript)
        left = {ast.unparse(part) for part in ast.walk(node.targets[0]) if isinstance(part, places)}
        right = {ast.unparse(part) for part in ast.walk(node.value) if isinstance(part, places)}
        if not left & right and not any(isinstance(part, ast.Starred) for part in parts):
            yield f"{name}:{node.lineno}: an assignment for each value"


def main():
    names = sys.argv[1:] or known_files()
    scripts = [name for name in names if name.endswith(".py")]
    names = [name for name in names if not name.endswith(".py")]
    bad = layout(names)
    for name in scripts:
        bad += packed(name, ast.parse((ROOT / name).read_text(encoding="utf-8"), name))
    for name in names:
        lines = (ROOT / name).read_text(encoding="utf-8").splitlines()
        bad += dialect(name, lines)
        bad += functions(name, lines)
    print("\n".join(bad), end="\n" if bad else "")
    return 1 if bad else 0


sys.exit(main())
