"""`pip install` from the tree: what it installs works by itself, with libneap beside it."""

import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

SOURCE = os.environ["NEAP_SOURCE"]


class Wheel(unittest.TestCase):
    def test_it_installs_and_works(self):
        with tempfile.TemporaryDirectory() as folder:
            scripts = os.path.dirname(sys.executable)
            environment = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "LD_LIBRARY_PATH", "NEAP_LIBRARY")}
            environment["PATH"] = scripts + os.pathsep + environment.get("PATH", "")
            target = os.path.join(folder, "installed")
            pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-build-isolation", "--no-deps"]
            build = ["--config-settings=build-dir=" + os.path.join(folder, "build"), "--target", target, SOURCE]
            done = subprocess.run(pip + build, env=environment, capture_output=True, text=True)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            there = {path.name for path in pathlib.Path(target, "neap").iterdir()}
            self.assertLessEqual({"__init__.py", "py.typed", "libneap.so.0"}, there)
            environment["PYTHONPATH"] = target
            code = "import neap; print(neap.__file__, neap.version(), neap.next_split(neap.Split(8, 1)))"
            command = [sys.executable, "-c", code]
            done = subprocess.run(command, env=environment, cwd=folder, capture_output=True, text=True, check=True)
            where, version, _ = done.stdout.split(" ", 2)
            self.assertEqual(os.path.dirname(where), os.path.join(target, "neap"))
            self.assertRegex(version, r"^\d+\.\d+\.\d+$")
            self.assertIn("micro-batch 4 x accumulation 2", done.stdout)


if __name__ == "__main__":
    unittest.main()
