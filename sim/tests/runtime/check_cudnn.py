"""Checks the numbers of sim/libraries/cudnn_api.h against cuDNN's headers, where they are installed.

    check_cudnn.py SOURCE_FOLDER [INCLUDE_FOLDER]

Every enumerator that begins with CUDNN_ must have the header's value. Ours leave out words that a header repeats:
CUDNN_BACKEND_TENSOR is its CUDNN_BACKEND_TENSOR_DESCRIPTOR. Exit status 77: no headers (in INCLUDE_FOLDER,
NEAP_TEST_CUDA_INCLUDE, /usr/local/cuda/include or /usr/include).
"""

import os
import pathlib
import re
import sys

OURS = {"CUDNN_DIM_MAX", "CUDNN_TYPE_COUNT", "CUDNN_BACKEND_BN_FINALIZE"}  # not the headers' names


def enumerators(text):
    """Name and value of each enumerator. A value that another name stands for is left out."""
    text = re.sub(r"/\*.*?\*/|//[^\n]*", "", text, flags=re.S)
    text = text.replace("CUDNN_DEPRECATED_ENUM", "")
    for body in re.findall(r"enum\b[^{;]*\{(.*?)\}", text, flags=re.S):
        value = -1
        for item in body.split(","):
            name, _, number = (part.strip() for part in item.partition("="))
            if not name:
                continue
            if number and not re.fullmatch(r"-?\d+U?", number):
                continue
            value = int(number.rstrip("U")) if number else value + 1
            yield name, value


def headers(folders):
    for folder in folders:
        found = [pathlib.Path(folder, f"cudnn_{part}.h") for part in ("graph", "ops", "cnn", "adv")]
        if all(path.exists() for path in found):
            return "\n".join(path.read_text(encoding="utf-8") for path in found)
    return None


def names_of(name):
    """Possible names in a header for one of our enumerators."""
    yield name
    yield name + "_DESCRIPTOR"
    yield name.replace("CUDNN_BACKEND_", "CUDNN_BACKEND_OPERATION_") + "_DESCRIPTOR"
    yield name.replace("CUDNN_ATTR_", "CUDNN_ATTR_OPERATION_")


def main():
    source = pathlib.Path(sys.argv[1], "sim", "libraries", "cudnn_api.h")
    text = headers(sys.argv[2:] or [os.environ.get("NEAP_TEST_CUDA_INCLUDE", ""), "/usr/local/cuda/include", "/usr/include"])
    if text is None:
        print("no headers of cuDNN")
        return 77
    theirs = dict(enumerators(text))
    wrong = checked = 0
    for name, value in enumerators(source.read_text(encoding="utf-8")):
        if not name.startswith("CUDNN_") or name in OURS:
            continue
        known = [other for other in names_of(name) if other in theirs]
        if not known:  # newer than these headers
            continue
        checked += 1
        if all(theirs[other] != value for other in known):
            wrong += 1
            print(f"{name} is {value}, and {known[0]} {theirs[known[0]]}")
    print(f"{checked} numbers compared")
    return 1 if wrong or checked < 100 else 0


sys.exit(main())
