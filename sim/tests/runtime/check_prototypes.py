"""Compares the parameters of sim/runtime/functions.h with CUDA's own header, if one is installed.

usage: check_prototypes.py FUNCTIONS.H [CUDA_RUNTIME_API.H]

For each function that both declare: the same number of parameters, and pointers in the same places.
Exits with 77 (skipped) without a header, with 1 if something differs.
"""

import os
import re
import sys

PLACES = ["/usr/local/cuda/include/cuda_runtime_api.h", "/usr/include/cuda_runtime_api.h"]
HANDLES = re.compile(  # of the runtime: pointers by another name
    r"cuda(Stream|Event|Graph|GraphExec|GraphNode|MemPool|UserObject|Function|Kernel|HostFn|StreamCallback|Library)_t")


def major_of(header):
    version = re.search(r"#define\s+CUDART_VERSION\s+(\d+)", header)
    return int(version[1]) // 1000 if version else 0


def shapes(parameters):
    """One letter for each parameter: p pointer, v value."""
    parameters = re.sub(r"__dv\([^)]*\)", "", parameters).strip()
    if parameters in ("", "void"):
        return ""
    return "".join("p" if "*" in one or HANDLES.search(one) or re.search(r"\bCU(stream|event|graph|graphExec|graphNode|"
                   r"memoryPool|userObject|hostFn)\b", one, re.I) else "v" for one in parameters.split(","))


def of_header(header):
    header = re.sub(r"/\*.*?\*/", "", header, flags=re.S)
    found = {}
    for name, parameters in re.findall(r"extern\s+__host__[^;]*?\b(cuda\w+)\s*\(([^;]*)\)\s*;", header):
        found[name] = shapes(" ".join(parameters.split()))
    return found


def of_ours(text, major):
    found = {}
    wanted = True
    for line in re.sub(r"\)\n\s+", ") ", re.sub(r",\n\s+", ", ", text)).splitlines():
        if line.startswith("#if"):
            wanted = ("== 12" in line) == (major == 12)
        elif line.startswith("#else"):
            wanted = not wanted
        elif line.startswith("#endif"):
            wanted = True
        match = re.match(r"X\((\w+), \((.*?)\)(?:, \(|\))", line)
        if match and wanted:
            found[match[1]] = shapes(match[2])
    return found


def main():
    places = sys.argv[2:] or PLACES
    path = next((place for place in places if os.path.exists(place)), None)
    if not path:
        print("no cuda_runtime_api.h on this machine")
        return 77
    with open(path, encoding="utf-8", errors="replace") as file:
        header = file.read()
    with open(sys.argv[1], encoding="utf-8") as file:
        ours = of_ours(file.read(), major_of(header))
    theirs = of_header(header)
    common = sorted(set(ours) & set(theirs))
    bad = [name for name in common if ours[name] != theirs[name]]
    for name in bad:
        print(f"{name}: ours has {ours[name] or 'none'}, CUDA's header {theirs[name] or 'none'}")
    print(f"{len(common)} functions compared, {len(bad)} differ")
    return 1 if bad or len(common) < 100 else 0


sys.exit(main())
