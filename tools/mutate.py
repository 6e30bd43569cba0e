#!/usr/bin/env python3
"""Do the tests notice? Breaks the code in one place at a time, as tools/mutations.txt lists, and runs the tests that ought to fail.

    mutate.py [--folder FOLDER] [WORD...]     WORD: a mutation's name, or a part of its file's path; by default all of them
    mutate.py --check                         whether each mutation still fits the code; builds nothing

A mutation that no test notices is a survivor: add the test, not an excuse. Works on a copy of the sources, so that nothing of the
tree changes; FOLDER (default build-mutate) keeps the copy and its build, in which only what the tests need is built again. Exits 1
when a mutation survived, does not compile, or no longer fits the code.
"""

import argparse
import json
import pathlib
import re
import shutil
import subprocess
import sys
import time
import typing

ROOT = pathlib.Path(__file__).resolve().parent.parent


def run(command, folder, log):
    return subprocess.run(command, cwd=folder, stdout=log, stderr=subprocess.STDOUT, check=False).returncode


class Mutation(typing.NamedTuple):
    file: str
    name: str
    code: str
    broken: str
    tests: list[str]


def read_mutations():
    """Reads the mutations, in the form that the head of tools/mutations.txt describes."""
    text = (ROOT / "tools" / "mutations.txt").read_text(encoding="utf-8")
    for entry in filter(None, re.split(r"\n(?:\n|#.*)+", f"\n{text}")):
        head, *lines = entry.strip("\n").split("\n")
        file, _, name = head.partition(": ")
        parts = {mark: [line[1:] for line in lines if line[0] == mark] for mark in "-+?"}
        if not name or not parts["-"] or len(parts["?"]) != 1 or sum(map(len, parts.values())) != len(lines):
            sys.exit(f"mutate.py: tools/mutations.txt: this is no mutation: {head}")
        tests = [test.strip() for test in parts["?"][0].split(",")]
        yield Mutation(file, name, "\n".join(parts["-"]), "\n".join(parts["+"]), tests)


def fits(mutation, folder):
    """None if the code occurs exactly once; else the reason why not."""
    file = folder / mutation.file
    if not file.is_file():
        return f"{mutation.file} does not exist"
    count = file.read_text(encoding="utf-8").count(mutation.code)
    if count != 1:
        return f"{mutation.file} has that code {count} times"
    return "it changes nothing" if mutation.code == mutation.broken else None


def copy_sources(folder):
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, stdout=subprocess.PIPE).stdout.decode()
    for name in filter(None, listed.split("\0")):
        source = ROOT / name
        to = folder / name
        if not source.is_file():
            to.unlink(missing_ok=True)
        elif not to.is_file() or to.read_bytes() != source.read_bytes():
            to.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(source, to)


class Build:
    """The built copy: its tests by name, and the targets that each needs."""

    def __init__(self, folder, log):
        self.folder = folder
        self.log = log
        copy_sources(folder)
        if (folder / "build" / "build.ninja").is_file():
            set_up = ["ninja", "-C", "build", "build.ninja"]
        else:
            set_up = ["meson", "setup", "build", "-Dwerror=false"]
        if run(set_up, folder, log):
            sys.exit(f"mutate.py: the copy cannot be set up: see {folder}/log")
        self.tests = {}
        for test in self.introspect("--tests"):
            for suite in test["suite"]:
                self.tests[f"{suite.split(':')[-1]}/{test['name']}"] = test
        self.files = {}
        self.common = []  # targets that tests may use without naming them: the simulator, the command, the Python package
        for target in self.introspect("--targets"):
            names = [str(pathlib.Path(name).relative_to(folder / "build")) for name in target["filename"]]
            self.files[target["id"]] = names
            place = str(pathlib.Path(target["defined_in"]).relative_to(folder))
            if target["build_by_default"] and not place.startswith(("tests/", "sim/tests/", "bench/")):
                self.common += names

    def introspect(self, what):
        command = ["meson", "introspect", "build", what]
        return json.loads(subprocess.run(command, cwd=self.folder, check=True, capture_output=True, text=True).stdout)

    def compile(self, tests):
        names = {name for test in tests for target in self.tests[test]["depends"] for name in self.files[target]}
        return run(["ninja", "-C", "build", "--quiet", *self.common, *sorted(names - set(self.common))], self.folder, self.log) == 0

    def run(self, tests, *options):
        """The results by meson's name of the test; if one fails, the rest may be missing."""
        results = {}
        written = self.folder / "build" / "meson-logs" / "testlog.json"
        for suite in sorted({test.split("/")[0] for test in tests}):
            names = [test.split("/", 1)[1] for test in tests if test.split("/")[0] == suite]
            command = ["meson", "test", "-C", "build", "--no-rebuild", "--timeout-multiplier", "5", "--suite", suite]
            run([*command, *options, *names], self.folder, self.log)
            for line in written.read_text(encoding="utf-8").splitlines():
                result = json.loads(line)
                results[f"{suite}/{result['name'].split(' / ')[-1]}"] = result["result"]
        return results


def check(mutations):
    stale = [f"{mutation.name}: {why}" for mutation in mutations if (why := fits(mutation, ROOT))]
    names = [mutation.name for mutation in mutations]
    stale += [f"{name}: two mutations have this name" for name in sorted(set(names)) if names.count(name) > 1]
    for line in stale:
        print(line)
    print(f"{len(mutations)} mutations of {len({mutation.file for mutation in mutations})} files; {len(stale)} do not fit")
    return not stale


def attempt(build, mutation, skipped):
    """The result of one mutation, in a word."""
    if fits(mutation, build.folder):
        return "STALE"
    tests = [test for test in mutation.tests if test not in skipped]
    if not tests:
        return "skipped"
    file = build.folder / mutation.file
    text = file.read_text(encoding="utf-8")
    file.write_text(text.replace(mutation.code, mutation.broken), encoding="utf-8")
    try:
        if not build.compile(tests):
            return "NO BUILD"
        results = build.run(tests, "--maxfail", "1")
    finally:
        file.write_text(text, encoding="utf-8")
    return "noticed" if any(result not in ("OK", "SKIP", "INTERRUPT") for result in results.values()) else "SURVIVED"


def try_out(folder, chosen):
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / "log", "w", encoding="utf-8") as log:
        build = Build(folder, log)
        tests = sorted({test for mutation in chosen for test in mutation.tests})
        unknown = [test for test in tests if test not in build.tests]
        if unknown:
            sys.exit(f"mutate.py: no such tests: {', '.join(unknown)}")
        if not build.compile(tests):
            sys.exit(f"mutate.py: the copy cannot be built: see {folder}/log")
        results = build.run(tests)
        failed = [test for test in tests if results.get(test) not in ("OK", "SKIP")]
        if failed:
            sys.exit(f"mutate.py: these fail without a mutation: {', '.join(failed)}: see {folder}/log")
        skipped = {test for test in tests if results[test] == "SKIP"}
        counts = {}
        for mutation in chosen:
            start = time.monotonic()
            outcome = attempt(build, mutation, skipped)
            counts[outcome] = counts.get(outcome, 0) + 1
            print(f"{outcome:9} {time.monotonic() - start:4.0f} s  {mutation.file}: {mutation.name}", flush=True)
    print(f"of {len(chosen)} mutations: {', '.join(f'{count} {outcome}' for outcome, count in sorted(counts.items()))}")
    return not any(counts.get(outcome) for outcome in ("SURVIVED", "NO BUILD", "STALE"))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--folder", type=pathlib.Path, default=ROOT / "build-mutate")
    parser.add_argument("words", nargs="*", metavar="WORD")
    options = parser.parse_args()
    chosen = [m for m in read_mutations() if not options.words or any(w == m.name or w in m.file for w in options.words)]
    if not chosen:
        parser.error("no mutation is called that")
    sys.exit(not (check(chosen) if options.check else try_out(options.folder.resolve(), chosen)))


if __name__ == "__main__":
    main()
