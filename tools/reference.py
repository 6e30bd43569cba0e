#!/usr/bin/env python3
"""reference.py SOURCE [--write]: the reference of Python and C, from docstrings, signatures and headers.

    docs/reference/python.md   each name of neap.__all__, of the callbacks and of the pytest plug-in; neap must be importable
    docs/reference/c.md        each declaration of include/neap/*.h below its comment

--write writes both; without it the names that lack something, and pages that differ, are printed, and the exit status is 1.
A name has a text; a function says what it raises; what is in bytes or seconds says so; and each has an example, its own or
that of a function which takes or returns it.
"""

import ast
import dataclasses
import enum
import inspect
import pathlib
import re
import sys
import textwrap

UNITS = re.compile(r"\b(bytes?|seconds?|sizes?|GiB|MiB|2\*\*20|share|days|minutes|milliseconds)\b", re.IGNORECASE)
MEASURED = re.compile(r"(^|_)(bytes|seconds|allocated|reserved|cached|freed|released|peak|budget|fraction|timeout|days|minutes)($|_)")
PROMISE = """\
Stable, from one release to the next: these names, the order and names of their arguments, the names, units and meaning of their
fields and what they raise. A release may add names, arguments with a default and fields; what goes is named in CHANGELOG.md one
release before. Names that begin with `_`, and modules that this page does not name, may change at any time. Texts (of errors, of
the log, of `print`) are for people and may change."""


class Name:
    """One public name, its value and its source."""

    def __init__(self, label, value):
        self.label = label
        self.value = value
        self.text = inspect.getdoc(value) if value.__doc__ and not is_plain(value) else ""
        self.text = self.text or ""

    @property
    def members(self):
        """Methods and properties, in the order of the source: (name, object)."""
        if not inspect.isclass(self.value) or issubclass(self.value, enum.Enum):
            return []
        found = vars(self.value).items()
        return [(name, member) for name, member in found if not name.startswith("_") and (callable(member) or isinstance(member, property))]

    @property
    def fields(self):
        """(name, type, default, comment) of a dataclass or named tuple."""
        if not inspect.isclass(self.value) or not (dataclasses.is_dataclass(self.value) or hasattr(self.value, "_fields")):
            return []
        lines = inspect.getsource(self.value).splitlines()
        body = ast.parse(textwrap.dedent("\n".join(lines))).body[0].body
        rows = []
        for node in (node for node in body if isinstance(node, ast.AnnAssign)):
            _, _, comment = lines[node.end_lineno - 1].partition("  # ")
            rows.append((node.target.id, ast.unparse(node.annotation), node.value and ast.unparse(node.value), comment))
        return rows


def is_plain(value):
    return isinstance(value, str)


def names():
    import neap

    found = [Name(name, getattr(neap, name)) for name in neap.__all__ if name != "__version__"]
    return sorted(found, key=lambda name: (not inspect.isclass(name.value), name.label.lower()))


def signature(label, value):
    """In one line or, if that is too long, with one argument on each line. Annotations are texts there, with quotes of their
    own."""
    whole = inspect.signature(value)
    parameters = [part for part in whole.parameters.values() if part.name != "self"]
    shown = [re.sub(r": '([^']*)'", r": \1", str(part)) for part in parameters]
    keywords = [index for index, part in enumerate(parameters) if part.kind is part.KEYWORD_ONLY]
    if keywords and parameters[keywords[0] - 1].kind is not inspect.Parameter.VAR_POSITIONAL:
        shown.insert(keywords[0], "*")
    returned = "" if inspect.isclass(value) or whole.return_annotation is whole.empty else f" -> {whole.return_annotation}"
    shown = [part.replace("_Path", "str | os.PathLike[str]") for part in shown]
    line = f"{label}({', '.join(shown)}){returned}"
    return line if len(line) <= 110 else f"{label}(\n" + "".join(f"    {part},\n" for part in shown) + f"){returned}"


def example_of(text):
    return ">>> " in text or bool(re.search(r"^ {4}\S", text, re.MULTILINE))


def related(name, everything):
    """Functions with an example that take or return the name, or whose examples use it."""
    word = re.compile(rf"\b{name.label}\b")
    found = []
    for other in everything:
        if other.label == name.label or not example_of(other.text):
            continue
        said = [str(inspect.signature(other.value))] if callable(other.value) and not is_error(other.value) else []
        said += [str(inspect.signature(member)) for _, member in other.members if inspect.isfunction(member)]
        said += [kind for _, kind, _, _ in other.fields]
        examples = re.findall(r"^(?: {4}|>>> |\.\.\. ).*$", other.text, re.MULTILINE)
        if any(word.search(text) for text in said + examples):
            found.append(other.label)
    return found


def is_error(value):
    return inspect.isclass(value) and issubclass(value, BaseException)


def shown_by(name, everything):
    """Which name has its example: the name itself, a function, or the type that holds a function's result."""
    if example_of(name.text):
        return [name.label]
    direct = related(name, everything)
    if direct:
        return direct
    word = re.compile(rf"\b{name.label}\b")
    return [o.label for o in everything if any(word.search(kind) for _, kind, _, _ in o.fields) and related(o, everything)]


def raises_itself(function):
    tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    return any(isinstance(node, ast.Raise) and node.exc is not None for node in ast.walk(tree))


def lacks(everything):
    """Lines with a name and the parts that its reference lacks."""
    for name in everything:
        if not name.text:
            yield f"{name.label}: no text"
        if inspect.isfunction(name.value):
            if not re.search(r"\b[Rr]aise", name.text):
                yield f"{name.label}: does not say what it raises"
            parameters = list(inspect.signature(name.value).parameters)
            if any(MEASURED.search(part) for part in parameters) and not UNITS.search(name.text):
                yield f"{name.label}: no unit"
        for label, kind, _, comment in name.fields:
            said = f"{name.text} {comment} {label.replace('_', ' ')}"
            if re.search(r"\b(int|float)\b", kind) and MEASURED.search(label) and not UNITS.search(said):
                yield f"{name.label}.{label}: no unit"
        for label, member in name.members:
            text = inspect.getdoc(member) or ""
            if not text:
                yield f"{name.label}.{label}: no text"
            if inspect.isfunction(member) and raises_itself(member) and not re.search(r"\b[Rr]aise", text + name.text):
                yield f"{name.label}.{label}: does not say what it raises"
        if not shown_by(name, everything):
            yield f"{name.label}: no example"


def markdown(text):
    """A docstring: its indented lines and >>> lines as blocks of code."""
    out = []
    code = False
    for line in text.splitlines():
        indented = line.startswith("    ") or line.startswith((">>> ", "... "))
        if indented and not code:
            out += ["", "```python"] if out and out[-1] else ["```python"]
            code = True
        elif code and not line:
            out += ["```", ""]
            code = False
            continue
        elif code and not indented and not any(part.startswith(">>> ") for part in out[-1 - out[::-1].index("```python"):]):
            out += ["```", ""]
            code = False
        out.append(line.removeprefix("    ") if code and line.startswith("    ") else line)
    return "\n".join(out + (["```"] if code else [])).strip()


def escaped(text):
    return text.replace("|", "\\|")


def python_entry(name, everything):
    value = name.value
    yield f"\n### {name.label}\n"
    if issubclass(value, enum.Enum) if inspect.isclass(value) else False:
        yield f"`enum`: {', '.join(f'`{member.name}` {member.value}' for member in value)}\n\n{markdown(name.text)}"
        return
    if not is_error(value) and not name.fields:
        yield f"```python\n{signature(label_of(name), value)}\n```\n"
    elif is_error(value):
        yield f"Exception, a `{value.__bases__[0].__name__}`.\n"
    yield markdown(name.text)
    if "see the module's text" in name.text:
        yield "\n" + markdown(inspect.getdoc(inspect.getmodule(value)))
    if name.fields:
        yield "\n| field | type | default | |\n|---|---|---|---|"
        for label, kind, default, comment in name.fields:
            yield f"| `{label}` | `{escaped(kind)}` | {f'`{escaped(default)}`' if default else ''} | {escaped(comment)} |"
    for label, member in name.members:
        shown = f"{label}: {inspect.signature(member.fget).return_annotation}" if isinstance(member, property) else signature(label, member)
        yield f"\n- `{' '.join(shown.split())}`: {' '.join((inspect.getdoc(member) or '').split())}"
    if not example_of(name.text):
        yield f"\nExample: see {', '.join(f'[{other}](#{other.lower()})' for other in shown_by(name, everything))}."


def label_of(name):
    return ("class " if inspect.isclass(name.value) else "") + f"neap.{name.label}"


def plug_in(path):
    """The text of a module that needs more than Python to be imported, from its source."""
    return markdown(ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))))


def python_page(source, everything):
    yield "# Python\n\nMade by `tools/reference.py` from the docstrings of the package. [python.md](../python.md) is the guide.\n"
    yield PROMISE
    yield "\nSizes are bytes and times seconds unless a name says otherwise. `import neap` needs neither torch nor a GPU.\n"
    yield "`neap.__version__` is the version, a text.\n"
    yield ", ".join(f"[{name.label}](#{name.label.lower()})" for name in everything)
    yield "\n## Names of `neap`"
    for name in everything:
        yield from python_entry(name, everything)
    yield "\n## Callbacks\n"
    for library in ("lightning", "transformers"):
        yield f"### neap.integrations.{library}\n\n" + plug_in(source / f"python/neap/integrations/{library}.py") + "\n"
    watch = (source / "python/neap/integrations/_watch.py").read_text(encoding="utf-8")
    options = next(node for node in ast.parse(watch).body if isinstance(node, ast.ClassDef) and node.name == "Watch")
    yield "### Options and results of both (`callback.watch`)\n\n" + markdown(ast.get_docstring(options))
    yield "\n## Pytest\n\n" + plug_in(source / "python/neap/pytest_plugin.py")


# C.


def prose(comment):
    """A comment's text. A drawing or example (a line that is indented further) stays as it is."""
    lines = [re.sub(r"^\s*\* ?", "", line) for line in comment.strip().removeprefix("/*").removesuffix("*/").splitlines()]
    lines[0] = lines[0].strip()
    return markdown_c("\n".join(lines).strip())


def markdown_c(text):
    out = []
    code = False
    for line in text.splitlines():
        if code != line.startswith("  ") and line:
            while out and not out[-1]:
                out.pop()
            out += ["```", ""] if code else ["", "```"]
            code = not code
        out.append(line.rstrip())
    return "\n".join(out + (["```"] if code else []))


def blocks(text):
    """The header's paragraphs after its guard: (comment, declarations)."""
    text = re.sub(r"^#ifdef __cplusplus\n.*?^#endif\n", "", text, flags=re.DOTALL | re.MULTILINE)
    text = re.sub(r"^#include .*\n", "", text, flags=re.MULTILINE).strip().removesuffix("#endif").strip()
    comment = ""
    for part in re.split(r"^(/\*.*?\*/)$", text, flags=re.DOTALL | re.MULTILINE):
        if part.startswith("/*"):
            comment = part
            continue
        held = re.sub(r"\n{3,}", "\n\n", part).strip("\n").expandtabs(8)
        if comment or held.strip():
            yield comment, held
        comment = ""


def header_page(path):
    head, text = re.match(r"(/\*.*?\*/)\s*#ifndef \w+\n#define \w+\n(.*)", path.read_text(encoding="utf-8"), re.DOTALL).groups()
    yield f"\n## neap/{path.name}\n\n" + re.sub(r"^neap/\w+\.h: ", "", prose(head)) + "\n"
    for comment, declarations in blocks(text):
        if comment:
            yield prose(comment) + "\n"
        if declarations.strip():
            yield f"```c\n{declarations}\n```\n"


def c_page(source):
    headers = sorted((source / "include/neap").glob("*.h"))
    yield "# C\n\nMade by `tools/reference.py` from the headers in `include/neap`. [c.md](../c.md) is the guide.\n"
    yield "Stable: the numbers of enum values (new ones are added at the end) and the meaning of what is here. Before 1.0 a release may"
    yield "still change functions and structs; CHANGELOG.md names each, and a program is then compiled again. The file format of"
    yield "recordings has a version of its own: [files.md](files.md).\n"
    yield ", ".join(f"[{path.name}](#neap{path.stem}h)" for path in headers)
    for path in headers:
        yield from header_page(path)


def main():
    source = pathlib.Path(sys.argv[1])
    everything = names()
    pages = {"python.md": python_page(source, everything), "c.md": c_page(source)}
    failed = [f"python: {line}" for line in lacks(everything)]
    for name, lines in pages.items():
        path = source / "docs/reference" / name
        text = "\n".join(lines) + "\n"
        if "--write" in sys.argv:
            path.parent.mkdir(exist_ok=True)
            path.write_text(text, encoding="utf-8")
        elif not path.is_file() or path.read_text(encoding="utf-8") != text:
            failed.append(f"{path}: not what the sources say now: tools/reference.py SOURCE --write")
    print("\n".join(failed) or f"{len(everything)} names of Python, nothing is missing")
    sys.exit(bool(failed))


if __name__ == "__main__":
    main()
