"""What ninja has to build for some of the tests: test_targets.py FOLDER SUITE...

Prints the targets of a configured build folder, one a line, without the programs of tests/, sim/tests/ and bench/ that only tests of
these suites run.
"""

import json
import os
import subprocess
import sys

folder = os.path.abspath(sys.argv[1])
left_out = set(sys.argv[2:])


def introspect(what):
    command = ["meson", "introspect", folder, what]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def is_run(test):
    return not left_out.intersection(suite.split(":")[-1] for suite in test["suite"])


needed = {target for test in introspect("--tests") if is_run(test) for target in test["depends"]}
source = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
for target in introspect("--targets"):
    place = os.path.relpath(target["defined_in"], source)
    if target["build_by_default"] and (not place.startswith(("tests/", "sim/tests/", "bench/")) or target["id"] in needed):
        print(*(os.path.relpath(name, folder) for name in target["filename"]), sep="\n")
