"""Checks that the stand-ins export the symbols that programs need.

    check_libraries.py FOLDER [TORCH_LIB...]

FOLDER has the stand-ins. Each TORCH_LIB is a folder of shared objects (site-packages/torch/lib): every symbol that
one of them needs from a replaced library must be exported by its stand-in in FOLDER, with its version. Without a
TORCH_LIB, those in NEAP_TEST_TORCH_LIB (separated by colons). Exit status 77: nothing to compare with.
"""

import importlib.util
import pathlib
import re
import subprocess
import sys


def symbols(path, option):
    """Dynamic symbols as nm names them (name@version, or name@@version), with their types."""
    text = subprocess.run(["nm", "-D", option, path], capture_output=True, text=True, check=True).stdout
    return [(line.split()[-2], line.split()[-1]) for line in text.splitlines()]


def needed_libraries(path):
    text = subprocess.run(["readelf", "-d", path], capture_output=True, text=True, check=True).stdout
    return re.findall(r"\(NEEDED\).*\[(.*)\]", text)


def exports(folder):
    """soname -> its symbols, name@version or name"""
    return {path.name: {name.replace("@@", "@") for kind, name in symbols(path, "--defined-only") if kind != "A"}
            for path in sorted(folder.glob("lib*.so.*")) if path.is_file() and path.suffix[1:].isdigit()}


def prefix_of(soname):
    """The prefix of a library's function names, for symbols without a version."""
    unversioned = {"libcufile.so.0": "cuFile", "libcusparseLt.so.0": "cusparseLt", "libnccl.so.2": "nccl"}
    return unversioned.get(soname)


def missing(path, have):
    """Symbols that `path` needs of a stand-in, and that it lacks."""
    needed = [soname for soname in needed_libraries(path) if soname in have]
    for kind, name in symbols(path, "--undefined-only"):
        if kind != "U":
            continue
        version = name.split("@")[1] if "@" in name else None
        if version:
            owners = [soname for soname in have if version == soname] or (
                ["libnvshmem_host.so.3"] if version == "NVSHMEM" and "libnvshmem_host.so.3" in have else [])
        else:
            owners = [soname for soname in needed if prefix_of(soname) and name.startswith(prefix_of(soname))]
        for owner in owners:
            if name not in have[owner]:
                yield f"{path.name} needs {name} of {owner}"


def installed():
    """The libraries of the PyTorch of this Python."""
    spec = importlib.util.find_spec("torch")
    folder = pathlib.Path(spec.origin).parent / "lib" if spec and spec.origin else None
    return [str(folder)] if folder and folder.is_dir() else []


def main():
    folder = pathlib.Path(sys.argv[1])
    torch = sys.argv[2:] or installed()
    have = exports(folder)
    if not have:
        sys.exit(f"{folder}: no stand-ins")
    bad = []
    for lib in torch:
        for path in sorted(pathlib.Path(lib).glob("*.so")):
            bad += missing(path, have)
    print("\n".join(bad), end="\n" if bad else "")
    if bad:
        return 1
    return 0 if torch else 77


sys.exit(main())
