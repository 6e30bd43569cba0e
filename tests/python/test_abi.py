"""Compares every declaration of neap/_abi.py, which the build makes, with the headers as the C compiler sees them."""

import ctypes
import os
import pathlib
import re
import subprocess
import tempfile
import unittest

from neap import _abi, _counters

HEADERS = pathlib.Path(os.environ["NEAP_INCLUDE"])

SIMPLE = {
    "int": ctypes.c_int,
    "unsigned": ctypes.c_uint,
    "int64_t": ctypes.c_int64,
    "ptrdiff_t": ctypes.c_ssize_t,
    "double": ctypes.c_double,
    "size_t": ctypes.c_size_t,
    "uint64_t": ctypes.c_uint64,
    "uint32_t": ctypes.c_uint32,
    "uint16_t": ctypes.c_uint16,
    "bool": ctypes.c_bool,
    "void": None,
}


def as_ctypes(text):
    """The ctypes type that mirrors a C type; a set if several types are right."""
    text = " ".join(re.sub(r"\bconst\b", "", text).split())
    if "FUNCTION" in text or re.match(r"neap_(\w+_callback|plugin_throw)\b", text):
        return {ctypes.c_void_p}
    if match := re.fullmatch(r"enum neap_\w+", text):
        return {ctypes.c_int}
    if match := re.fullmatch(r"struct (neap_\w+)\s*([* ]*)", text):
        mirrored = _abi.STRUCTS.get(match[1])
        stars = match[2].count("*")
        if not stars:
            return {mirrored}
        return {ctypes.POINTER(ctypes.c_void_p)} if stars > 1 else {ctypes.POINTER(mirrored)} if mirrored else {ctypes.c_void_p}
    if match := re.fullmatch(r"(unsigned char|\w+)\s*([* ]+)", text):
        pointed = {"char": ctypes.c_char_p, "unsigned char": ctypes.c_char_p, "void": ctypes.c_void_p}.get(match[1])
        pointed = pointed or ctypes.POINTER(SIMPLE[match[1]])
        return {pointed if match[2].count("*") == 1 else ctypes.POINTER(pointed)}
    return {SIMPLE[text]}


def prototypes():
    found = {}
    for header in sorted(HEADERS.glob("*.h")):
        text = re.sub(r"/\*.*?\*/", "", header.read_text(encoding="utf-8"), flags=re.S)
        for result, name, arguments in re.findall(r"NEAP_API\s+([^;()]*?)\s*(\w+)\(([^;{}]*)\);", text):
            arguments = re.sub(r"\(\*\w+\)\([^)]*\)", "FUNCTION", arguments)
            found[name] = (result, [] if arguments.strip() == "void" else [a.strip() for a in arguments.split(",")])
    return found


def type_of(argument):
    """An argument without its name."""
    array = "*" if argument.endswith("]") else ""
    return "FUNCTION" if "FUNCTION" in argument else re.sub(r"\w+(\[\w*\])?$", "", argument).strip() + array


class Abi(unittest.TestCase):
    def test_prototypes(self):
        declared = prototypes()
        self.assertEqual(sorted(_abi.FUNCTIONS), sorted(declared))
        for name, (result, arguments) in _abi.FUNCTIONS.items():
            with self.subTest(name):
                c_result, c_arguments = declared[name]
                self.assertIn(result, as_ctypes(c_result))
                self.assertEqual(len(arguments), len(c_arguments), c_arguments)
                for mirrored, argument in zip(arguments, c_arguments):
                    self.assertIn(mirrored, as_ctypes(type_of(argument)), argument)

    def test_layouts_and_values(self):
        lines = ['#include "neap/neap.h"', "#include <stdio.h>", "int main(void)", "{"]
        expected = []
        for c_name, mirrored in _abi.STRUCTS.items():
            lines.append(f'printf("{c_name} %zu\\n", sizeof(struct {c_name}));')
            expected.append(f"{c_name} {ctypes.sizeof(mirrored)}")
            for field, *_ in mirrored._fields_:
                place = getattr(mirrored, field)
                lines.append(
                    f'printf("{c_name}.{field} %zu %zu\\n", __builtin_offsetof(struct {c_name}, {field}), '
                    f"sizeof(((struct {c_name} *)0)->{field}));"
                )
                expected.append(f"{c_name}.{field} {place.offset} {place.size}")
        for mirrored, prefix in _abi.ENUMS.values():
            for member in mirrored:
                lines.append(f'printf("{prefix}{member.name} %d\\n", (int){prefix}{member.name});')
                expected.append(f"{prefix}{member.name} {member.value}")
        for count, names in (("NEAP_METRIC_COUNT", _counters.METRICS), ("NEAP_CLASS_COUNT", _counters.POOLS)):
            lines.append(f'printf("{count} %d\\n", (int){count});')
            expected.append(f"{count} {len(names)}")
        lines += ["return 0;", "}"]
        with tempfile.TemporaryDirectory() as folder:
            source = pathlib.Path(folder, "layout.c")
            program = pathlib.Path(folder, "layout")
            source.write_text("\n".join(lines))
            subprocess.run(["cc", "-I", str(HEADERS.parent), "-o", str(program), str(source)], check=True)
            printed = subprocess.run([str(program)], check=True, capture_output=True, text=True).stdout
        self.assertEqual(printed.splitlines(), expected)

    def test_all_statuses_are_there(self):
        text = (HEADERS / "status.h").read_text(encoding="utf-8")
        in_c = dict(re.findall(r"^\s*NEAP_(\w+) = (\d+),", text, re.M))
        self.assertGreater(len(in_c), 15)
        self.assertEqual({name: int(value) for name, value in in_c.items()}, {s.name: s.value for s in _abi.Status})

    def test_flags_of_an_oom(self):
        text = (HEADERS / "event.h").read_text(encoding="utf-8")
        in_c = dict(re.findall(r"^#define NEAP_(OOM_\w+) (\d+)u$", text, re.M))
        self.assertEqual(in_c, {"OOM_OTHER": str(_abi.OOM_OTHER), "OOM_GROWS": str(_abi.OOM_GROWS)})


if __name__ == "__main__":
    unittest.main()
