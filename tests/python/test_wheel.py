"""`pip install` from the tree: what it installs works by itself, with libneap, the simulator and the command beside it."""

import importlib.util
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

SOURCE = os.environ["NEAP_SOURCE"]
DROPPED = ("PYTHONPATH", "LD_LIBRARY_PATH", "NEAP_LIBRARY", "NEAP_SIM_PATH", "NEAP_SIM_RUNTIME", "NEAP_ATTACH")


@unittest.skipUnless(os.environ.get("NEAP_LONG"), "only with NEAP_LONG=1: it builds all of neap again")
class Wheel(unittest.TestCase):
    def setUp(self):
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.folder = pathlib.Path(holder.name)
        self.environment = {k: v for k, v in os.environ.items() if k not in DROPPED}
        (self.folder / "runtime").mkdir(mode=0o700)
        scripts = os.path.dirname(sys.executable)
        self.environment["PATH"] = scripts + os.pathsep + self.environment.get("PATH", "")
        world = f"wheel-{os.getpid()}"
        self.environment.update(NEAP_DEVICE="sim", NEAP_SIM=f"mem=1GiB,world={world}", XDG_STATE_HOME=str(self.folder / "state"))
        self.environment.update(XDG_RUNTIME_DIR=str(self.folder / "runtime"))
        self.addCleanup(lambda: [p.unlink(missing_ok=True) for p in pathlib.Path("/dev/shm").glob(f"neap-sim-*-{world}")])

    def command(self, *words, status=0, **more):
        done = subprocess.run([str(w) for w in words], env={**self.environment, **{k: str(v) for k, v in more.items()}}, cwd=self.folder, capture_output=True, text=True)
        self.assertEqual(done.returncode, status, done.stdout + done.stderr)
        return done

    def test_it_installs_and_works(self):
        # Into an environment of its own, as users do; without optimization it is built in half the time.
        self.command(sys.executable, "-m", "venv", "--without-pip", "venv")
        python = self.folder / "venv" / "bin" / "python"
        pip = [sys.executable, "-m", "pip", "--quiet"]
        offline = ["--no-index", "--no-deps"]
        build = [f"--config-settings=build-dir={self.folder}/build", "--config-settings=setup-args=-Doptimization=0"]
        self.command(*pip, "wheel", *offline, "--no-build-isolation", *build, SOURCE)
        (wheel,) = self.folder.glob("neap-*.whl")
        self.command(*pip, "--python", python, "install", *offline, wheel)
        (package,) = (self.folder / "venv").glob("lib/python3*/site-packages/neap")
        there = {path.name for path in package.iterdir()}
        self.assertLessEqual({"__init__.py", "py.typed", "libneap.so.0", "neap", "sim", "launch"}, there)

        runtime = {path.name for path in (package / "sim" / "runtime").iterdir()}
        self.assertLessEqual({"libcudart.so.12", "libcudart.so.13", "libcublas.so.13"}, runtime)

        code = "import neap; print(neap.__file__, neap.version(), neap.next_split(neap.Split(8, 1)))"
        where, version, _ = self.command(python, "-c", code).stdout.split(" ", 2)
        self.assertEqual(os.path.dirname(where), str(package))
        self.assertRegex(version, r"^\d+\.\d+\.\d+$")

        neap = self.folder / "venv" / "bin" / "neap"
        self.assertEqual(self.command(neap, "--version").stdout.splitlines()[0], f"neap {version}")
        self.assertIn("Simulated GPU", self.command(neap, "info").stdout)
        self.assertEqual(self.command(neap, "run", "--quiet", "--", "sh", "-c", "exit 7", status=7).stdout, "")
        self.assertIn(f"export NEAP_SIM_RUNTIME='{package}/sim/runtime'\n", self.command(neap, "sim", "env").stdout)
        folders = self.command(python, "-c", "from neap import _simulator; print(*_simulator.folders())").stdout
        self.assertEqual(folders, f"{package}/sim {package}/sim/runtime\n")
        # Any Python, not only the one that neap was installed for: it waits for a module of this name.
        named = self.folder / "named"
        named.mkdir()
        (named / "torch.py").write_text("class cuda:\n    _lazy_call = staticmethod(lambda function: function())\n")
        script = "import neap, torch\nprint(neap.__file__, neap.describe().partition(';')[0])"
        for interpreter in (python, "/usr/bin/python3"):
            done = self.command(neap, "run", "--", interpreter, "-c", script, PYTHONPATH=named)
            self.assertEqual(done.stdout, f"{package}/__init__.py attached\n")
        found = importlib.util.find_spec("torch")
        if found is None:
            self.skipTest("no PyTorch is here to run on the installed stand-ins")
        script = "import neap, torch\nx = torch.zeros(5 << 20, dtype=torch.uint8, device='cuda')\nprint(neap.__file__, neap.describe())"
        done = self.command(neap, "run", "--", python, "-c", script, PYTHONPATH=pathlib.Path(found.origin).parents[1])
        self.assertEqual(done.stdout, f"{package}/__init__.py attached\n")
        self.assertIn("peak      5.00 MiB allocated", done.stderr)
        self.assertIn("simulated no kernel ran", done.stderr)

    def test_without_what_the_command_needs(self):
        setup = ["meson", "setup", "-Dwheel=true", "-Dcommand=auto", "build", SOURCE]
        self.command(*setup, PKG_CONFIG_LIBDIR=str(self.folder), CMAKE="/bin/false")
        targets = self.command("ninja", "-C", "build", "-t", "targets", "all").stdout
        self.assertIn("src/libneap.so.0: ", targets)
        self.assertNotIn("src/neap: ", targets)
        text = (self.folder / "build" / "python" / "_command.py").read_text()
        program = self.folder / "_command.py"
        program.write_text(text + "\n\nsys.exit(main())\n")
        done = self.command(sys.executable, program, "info", status=69)
        self.assertRegex(done.stderr, r"Install the Debian packages libjansson-dev [a-z0-9 -]*libzstd-dev[a-z0-9 -]*, and then neap again")


if __name__ == "__main__":
    unittest.main()
