"""The reference: it is complete, its pages agree with the sources, and each example of a docstring prints what it
shows.

Examples that use torch run if torch is installed, the others if it is not.
"""

import doctest
import importlib.util
import os
import pathlib
import subprocess
import sys
import unittest

if __name__ == "__main__":
    os.environ["NEAP_SIM"] = f"mem=4GiB,world=reference-{os.getpid()}"

import neap

SOURCE = pathlib.Path(os.environ["NEAP_SOURCE"])
TORCH = importlib.util.find_spec("torch") is not None


def examples():
    """(name, its examples) of this stage."""
    for name in neap.__all__:
        text = getattr(getattr(neap, name), "__doc__", None) or ""
        found = [example for example in doctest.DocTestParser().get_examples(text) if name != "__version__"]
        if found and ("import torch" in text) == TORCH:
            yield name, found


class Reference(unittest.TestCase):
    @unittest.skipIf(TORCH, "without torch alone: signatures are read on one version of Python")
    def test_nothing_is_missing_and_the_pages_are_made_from_the_sources(self):
        made = subprocess.run([sys.executable, SOURCE / "tools" / "reference.py", SOURCE], capture_output=True, text=True)
        self.assertEqual((made.returncode, made.stderr), (0, ""), made.stdout)

    def test_each_example_prints_what_it_shows(self):
        count = 0
        for name, found in examples():
            with self.subTest(name):
                space = {"neap": neap, "os": os, "pathlib": pathlib, "tempfile": __import__("tempfile")}
                said = []
                test = doctest.DocTest(found, space, name, None, 0, None)
                doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(test, out=said.append)
                self.assertEqual("".join(said), "")
                count += 1
        self.assertGreater(count, 3 if TORCH else 20)

    def test_dir_has_public_names_alone(self):
        self.assertEqual(dir(neap), sorted(neap.__all__))


if __name__ == "__main__":
    unittest.main()
