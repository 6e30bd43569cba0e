"""Makes the C of a stand-in's plain functions, and its linker's version script, from its table.

    make_stand_in.py TABLE SONAME OUT.c OUT.map

A table (sim/libraries/*.txt) lists every function that a library exports, and how it answers. Functions that
decide something are written in C beside it; the table names them too. A line is empty, a comment from # on, a setting
or a function.

Settings, before the functions:

    library NAME        what reports call the library; default: the table's name
    version NODE        the version of the symbols: soname (default: the library's soname), none, or a name
    refused CODE        what a refused function returns: the library's "not supported"
    failed CODE         what a computation returns whose launch failed; default: that of `refused`
    stream FUNCTION     intptr_t FUNCTION(uintptr_t first, void **ret_stream): a computation's stream, from its first
                        argument, a handle. Returns 0, or the code with which the computation fails
    sizes FUNCTION      bool FUNCTION(const char *function, const char *kind, const int64_t *numbers, struct
                        stand_in_size *ret_size): the size for `size4` and `size8`. False: an argument is invalid, and the
                        function returns the setting `invalid`
    invalid CODE        see `sizes`
    host FUNCTION       bool FUNCTION(uintptr_t first): whether its results go to host memory, for `result`; called
                        after the function of `stream`

A function is `NAME ANSWER [RULE...]`. `cublas{S,D}gemm` stands for two names. Answers:

    compute [stream=N]  queues work that does nothing on the stream, counts values that were not computed, returns 0.
                        The stream is argument N, else what the setting `stream` gives, else nothing is queued
    ok [CODE]           returns CODE (default: 0): a setting that has no effect on memory or on what other functions
                        answer
    refuse [CODE]       returns CODE (default: the setting `refused`), counts a refused call
    written             defined in the library's C

Rules say what `compute` and `ok` write before they return. Where a pointer is NULL nothing is written.

    zero=N:BYTES        BYTES zero bytes at the host address in argument N; N:BYTES*M: for each of the M (argument) parts
    result=N:BYTES      the same, if the setting `host` says that results go to host memory
    create=N            a new object's address at argument N; each is distinct. Out of memory: returns `failed`
    destroy=N           frees the object in argument N that `create` made
    forget=N:BYTES      device memory at argument N reads as zeros: a status that the device writes; also N:BYTES*M
    size4=N:KIND:ARGUMENTS
                        a size of 4 bytes (size8: 8) at argument N, which the setting `sizes` gives for KIND and up to four
                        numbers: arguments, separated by colons; - if absent (it is passed as -1),
                        5p for a pointer in argument 5, whole

Arguments count from 0, and count only integers and pointers: the calling conventions of x86-64 and AArch64 pass
floating-point arguments apart. So a generated function declares the arguments that it reads, each as wide as a
pointer. It returns intptr_t, which serves for status codes, pointers and structs of two ints.
"""

import pathlib
import re
import sys

SETTINGS = {"library", "version", "refused", "failed", "invalid", "stream", "host", "sizes"}
ANSWERS = {"compute", "ok", "refuse", "written"}
RULES = {
    "compute": {"stream", "zero", "result", "create", "destroy", "forget", "size4", "size8"},
    "ok": {"zero", "result", "create", "destroy", "forget", "size4", "size8"},
    "refuse": set(),
    "written": set(),
}


class Rule:
    """`name=argument...`. `bytes` are for each of the parts that argument `parts` counts; None: there is one part."""

    def __init__(self, name, argument, bytes=None, parts=None, kind=None, numbers=()):
        self.name = name
        self.argument = argument
        self.bytes = bytes
        self.parts = parts
        self.kind = kind
        self.numbers = numbers

    def last(self):
        numbers = [int(number.rstrip("p")) for number in self.numbers if number != "-"]
        return max(self.argument, self.parts or 0, *numbers)


class Function:
    def __init__(self, name, answer, rules, code=None):
        self.name = name
        self.answer = answer
        self.rules = rules
        self.code = code

    def arguments(self):
        """How many arguments the generated function declares: up to the last that a rule reads."""
        return 1 + max([0] + [rule.last() for rule in self.rules])


def parse_rule(word):
    if match := re.fullmatch(r"(stream|create|destroy)=(\d+)", word):
        return Rule(match[1], int(match[2]))
    if match := re.fullmatch(r"(zero|result|forget)=(\d+):(\d+)(?:\*(\d+))?", word):
        return Rule(match[1], int(match[2]), bytes=int(match[3]), parts=int(match[4]) if match[4] else None)
    if match := re.fullmatch(r"(size4|size8)=(\d+):(\w+)((?::(?:\d+p?|-)){0,4})", word):
        return Rule(match[1], int(match[2]), bytes=int(match[1][4:]), kind=match[3], numbers=match[4].split(":")[1:])
    raise ValueError(f"not a rule: {word}")


def names_of(word):
    """a{b,c}d: abd, acd"""
    match = re.fullmatch(r"(\w*)\{([\w,]*)\}(.*)", word)
    return [name for part in match[2].split(",") for name in names_of(match[1] + part + match[3])] if match else [word]


def parse_function(name, words):
    answer = words[0] if words else ""
    rest = words[1:]
    if answer not in ANSWERS:
        raise ValueError(f"{name}: not an answer: {answer or '(none)'}")
    code = int(rest.pop(0), 0) if answer in ("ok", "refuse") and rest and "=" not in rest[0] else None
    rules = [parse_rule(word) for word in rest]
    for rule in rules:
        if rule.name not in RULES[answer]:
            raise ValueError(f"{name}: {answer} has no rule {rule.name}")
    return Function(name, answer, rules, code)


def parse_table(path):
    """The settings and the functions of a table, in the table's order."""
    settings = {"library": path.stem, "version": "soname"}
    functions = {}
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        words = line.split("#")[0].split()
        try:
            if not words:
                continue
            if words[0] in SETTINGS:
                if functions or len(words) != 2:
                    raise ValueError(f"{words[0]}: a setting has one value and comes before the functions")
                settings[words[0]] = words[1]
                continue
            for name in names_of(words[0]):
                if name in functions:
                    raise ValueError(f"{name}: twice")
                function = functions[name] = parse_function(name, words[1:])
                check_settings(function, settings)
        except ValueError as error:
            sys.exit(f"{path}:{number}: {error}")
    return settings, list(functions.values())


def check_settings(function, settings):
    """Checks that each setting that the function's answer needs is there."""
    if function.answer == "refuse" and function.code is None and "refused" not in settings:
        raise ValueError(f"{function.name}: refuse needs a code, or the setting refused")
    for rule in function.rules:
        for name, setting in (("result", "host"), ("size4", "sizes"), ("size8", "sizes")):
            if rule.name == name and setting not in settings:
                raise ValueError(f"{function.name}: {name} needs the setting {setting}")


def rule_text(function, rule, settings):
    bytes = f"{rule.bytes}" if rule.parts is None else f"{rule.bytes} * stand_in_parts(a{rule.parts})"
    if rule.name == "zero":
        return f"stand_in_zero(a{rule.argument}, {bytes});"
    if rule.name == "forget":
        return f"stand_in_forget(a{rule.argument}, {bytes});"
    if rule.name == "result":
        return f"if ({settings['host']}(a0))\n\t\tstand_in_zero(a{rule.argument}, {bytes});"
    if rule.name == "create":
        return f"if (!stand_in_create(a{rule.argument}))\n\t\treturn stand_in_library.failed;"
    if rule.name == "destroy":
        return f"stand_in_destroy(a{rule.argument});"
    numbers = ["-1" if number == "-" else f"(int64_t)a{number[:-1]}" if number.endswith("p") else f"(int32_t)a{number}"
               for number in [*rule.numbers, *["-"] * 4][:4]]
    return (f"if (!stand_in_size(\"{function.name}\", \"{rule.kind}\", (int64_t[]){{{', '.join(numbers)}}}, "
            f"{settings['sizes']}, a{rule.argument}, {rule.bytes}))\n\t\treturn {settings.get('invalid', '0')};")


def function_text(function, settings):
    if function.answer == "refuse":
        code = "stand_in_library.refused" if function.code is None else str(function.code)
        return (f"intptr_t {function.name}(void);\nintptr_t {function.name}(void)\n{{\n"
                f"\tstand_in_refuse(\"{function.name}\");\n\treturn {code};\n}}\n")
    names = [f"a{i}" for i in range(function.arguments())]
    arguments = ", ".join(f"uintptr_t {name}" for name in names)
    lines = [f"(void){name};" for name in names]
    stream = next((f"(void *)a{rule.argument}" for rule in function.rules if rule.name == "stream"), None)
    if function.answer == "compute" and not stream and "stream" in settings:
        lines += ["void *stream = NULL;", f"intptr_t status = {settings['stream']}(a0, &stream);\n",
                  "if (status != 0)\n\t\treturn status;"]
        stream = "stream"
    lines += [rule_text(function, rule, settings) for rule in function.rules if rule.name != "stream"]
    if stream:
        lines.append(f"return stand_in_compute(\"{function.name}\", {stream});")
    elif function.answer == "compute":
        lines.append(f"return stand_in_values(\"{function.name}\");")
    else:
        lines.append(f"return {function.code or 0};")
    body = "".join(f"\t{line}\n" for line in lines)
    return f"intptr_t {function.name}({arguments});\nintptr_t {function.name}({arguments})\n{{\n{body}}}\n"


def c_text(path, settings, functions):
    """The plain functions. It also refers to each hand-written function, so that a missing one fails to link."""
    refused = int(settings.get("refused", "0"), 0)
    failed = int(settings.get("failed", str(refused)), 0)
    written = [function.name for function in functions if function.answer == "written"]
    text = [f"/* Made by tools/make_stand_in.py from {path.name}. */\n#include \"sim/libraries/stand_in.h\"\n",
            f"const struct stand_in_library stand_in_library = {{\"{settings['library']}\", {refused}, {failed}}};\n"]
    if "stream" in settings:
        text.append(f"intptr_t {settings['stream']}(uintptr_t first, void **ret_stream);\n")
    if "host" in settings:
        text.append(f"bool {settings['host']}(uintptr_t first);\n")
    if "sizes" in settings:
        text.append(f"stand_in_sizes {settings['sizes']};\n")
    text += [f"extern const char {name}[];" for name in written]
    if written:
        text.append("extern const void *const stand_in_written[];\nconst void *const stand_in_written[] = {")
        text += [f"\t{name}," for name in written]
        text.append("};\n")
    text += [function_text(function, settings) for function in functions if function.answer != "written"]
    return "\n".join(text)


def map_text(soname, settings, functions):
    node = {"soname": soname + " ", "none": ""}.get(settings["version"], settings["version"] + " ")
    names = "".join(f"\t\t{function.name};\n" for function in functions)
    return f"{node}{{\n\tglobal:\n{names}\tlocal:\n\t\t*;\n}};\n"


def main():
    table, soname, c, version_script = sys.argv[1:]
    settings, functions = parse_table(pathlib.Path(table))
    pathlib.Path(c).write_text(c_text(pathlib.Path(table), settings, functions), encoding="utf-8")
    pathlib.Path(version_script).write_text(map_text(soname, settings, functions), encoding="utf-8")


if __name__ == "__main__":
    main()
