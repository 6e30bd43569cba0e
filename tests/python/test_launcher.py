"""`neap run -- python ...`: an unchanged script is attached and does not notice, with any Python and in any
environment. The launcher waits for a module named torch. Here that is a few lines, so that the test runs with any
Python and in no time. test_run.py and test_live.py test on the real PyTorch what happens then."""

import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
import unittest

NEAP = os.environ["NEAP"]
LAUNCH = str(pathlib.Path(NEAP).parents[1] / "python" / "launch")
PYTHON = sys.executable
BOUND = 150
# Variables of the caller that change a Python program, or place it in a distributed training or a run.
DROPPED = ("LD_LIBRARY_PATH", "PYTHON", "NEAP", "RANK", "LOCAL_RANK", "WORLD_SIZE", "CUDA_VISIBLE_DEVICES")

# Importing it uses CUDA: the process is attached, and its recording shows that.
TORCH = """
class cuda:
    is_initialized = staticmethod(lambda: False)
    _lazy_call = staticmethod(lambda function: function())
"""
USES_CUDA = "\nimport torch\n"

WAITS = """
import os, time, torch
open("ready", "w").close()
end = time.monotonic() + 170
while not os.path.exists("go") and time.monotonic() < end:
    time.sleep(0.01)
"""

# Uses the device without PyTorch until it is ended.
HOLDS = """
import ctypes, os, sys, time
cuda = ctypes.CDLL(os.path.join(os.environ["NEAP_SIM_PATH"], "libcuda.so.1"))
device, context, address = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_uint64()
failed = (cuda.cuInit(0) or cuda.cuDeviceGet(ctypes.byref(device), 0)
          or cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device) or cuda.cuCtxSetCurrent(context)
          or cuda.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(200 << 20)))
assert not failed, failed
time.sleep(170)
"""


class Launcher(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="neap-launcher-"))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        (self.folder / "runtime").mkdir(mode=0o700)
        self.site = str(self.folder / "site")
        self.script(TORCH, "site/torch.py")
        self.world = f"launcher-{os.getpid()}-{self._testMethodName}"[:60]
        self.environment = {
            **{k: v for k, v in os.environ.items() if not k.startswith(DROPPED)},
            "NEAP_SIM_PATH": os.environ["NEAP_SIM_PATH"],
            "NEAP_DEVICE": "sim",
            "NEAP_SIM": f"mem=1GiB,world={self.world}",
            "XDG_RUNTIME_DIR": str(self.folder / "runtime"),
            "XDG_STATE_HOME": str(self.folder / "state"),
            "PYTHONPATH": self.site,
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        self.addCleanup(self.forget_world)
        self.started = []
        self.addCleanup(lambda: [p.kill() or p.wait() for p in self.started if p.poll() is None])

    def forget_world(self):
        for path in pathlib.Path("/dev/shm").glob(f"*{self.world}*"):
            path.unlink(missing_ok=True)

    # Helpers.

    def command(self, *words, check=True, **more):
        done = subprocess.run(
            [str(w) for w in words], cwd=self.folder, env={**self.environment, **more}, capture_output=True, text=True, timeout=BOUND
        )
        if check:
            self.assertEqual(done.returncode, 0, done.stderr)
        return done

    def script(self, text, name="script.py"):
        path = self.folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(textwrap.dedent(text))
        return path.name if path.parent == self.folder else str(path)

    def run_neap(self, *words, options=(), check=True, **more):
        shutil.rmtree(self.folder / "run", ignore_errors=True)
        return self.command(NEAP, "run", "--folder", "run", "--drain-limit", "1s", *options, "--", *words, check=check, **more)

    def result(self):
        return json.loads((self.folder / "run" / "result.json").read_text())

    def without_launch(self, shown):
        """A printed sys.path, without the folder that neap adds to it."""
        self.assertEqual(shown.count(repr(LAUNCH)), 1, shown)
        return shown.replace(repr(LAUNCH) + ", ", "")

    def recordings(self):
        return sorted((self.folder / "run").glob("record.*"))

    def start(self, *words, **more):
        """A background run whose script is ready; and the script's PID."""
        words = [NEAP, "run", "--quiet", "--folder", "run", "--drain-limit", "1s", "--", *words]
        process = subprocess.Popen(words, cwd=self.folder, env={**self.environment, **more}, stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, text=True)
        self.addCleanup(process.stderr.close)
        self.addCleanup(process.stdout.close)
        self.started.append(process)
        end = time.monotonic() + BOUND
        while not (self.folder / "ready").exists():
            self.assertIsNone(process.poll(), "it ended at once")
            self.assertLess(time.monotonic(), end)
            time.sleep(0.01)
        (recording,) = self.recordings()
        return process, recording.name.split(".")[1]

    # Nothing shows.

    def test_a_program_sees_what_it_sees_without_neap(self):
        self.script("import sys\nprint(sys.argv, sys.path, sys.flags, __name__, __file__, sys.stdin.isatty())", "package/tool.py")
        shown = "import sys; print(sys.argv, sys.path, sys.flags, __name__)"
        for words in (
            ["package/tool.py", "a", "-b", ""],
            ["-m", "package.tool", "--x"],
            ["-c", shown, "1", "2"],
            ["-u", "-W", "ignore", "package/tool.py"],
            ["-s", "package/tool.py"],
        ):
            plain = self.command(PYTHON, *words)
            self.assertEqual(self.without_launch(self.run_neap(PYTHON, *words).stdout), plain.stdout)

    def test_a_child_whose_path_is_its_parents(self):
        """As PyTorch's compile workers are started: without neap's sitecustomize they would find no stand-ins."""
        self.script("import sys; sys.is_users = True", "site/sitecustomize.py")
        starts = "import os, subprocess, sys; subprocess.run([sys.executable, '-c', {!r}], check=True, " \
                 "env=dict(os.environ, PYTHONPATH=os.pathsep.join(sys.path)))"
        for python in {PYTHON, "/usr/bin/python3"}:
            self.run_neap(python, "-c", starts.format("import sys; print(sys.is_users)" + USES_CUDA))
            self.assertEqual(len(self.recordings()), 1, python)

    def test_a_python_whose_path_was_replaced_is_reached_once_it_uses_the_driver(self):
        self.script("import sys; sys.times = getattr(sys, 'times', 0) + 1", "site/sitecustomize.py")
        uses = "import ctypes, os, sys, torch\nctypes.CDLL('libcuda.so.1').cuInit(0)\n"
        shows = f"print(os.environ['PYTHONPATH'].replace({LAUNCH!r}, 'launch'), sys.times, sys.path.count({LAUNCH!r}))"
        for path in (self.site, f"{LAUNCH}:{self.site}"):  # replaced, as it should be
            done = self.run_neap("env", f"PYTHONPATH={path}", PYTHON, "-c", uses + shows)
            self.assertEqual(done.stdout, f"launch:{self.site} 1 {int(path != self.site)}\n")
            self.assertNotIn("outside", done.stderr)
            self.assertEqual(len(self.recordings()), 1)
        self.run_neap("env", f"PYTHONPATH={self.site}", "NEAP_ATTACH=0", PYTHON, "-c", uses)
        self.assertEqual(self.recordings(), [])

    def test_jax_with_a_plugin_for_cuda_is_named(self):
        self.script("", "site/jax_plugins.py")
        self.assertNotIn("JAX", self.run_neap(PYTHON, "-c", "import jax_plugins").stderr)
        (self.folder / "site" / "jax_plugins.py").unlink()
        (self.folder / "site" / "jax_plugins").mkdir()
        self.script("", "site/jax_plugins/xla_cuda13.py")
        done = self.run_neap(PYTHON, "-c", "import jax_plugins.xla_cuda13")
        self.assertRegex(done.stderr, r"note      process \d+: JAX finds no simulated GPU: it looks for /dev/nvidia0, and")

    def test_status_and_streams_are_the_programs(self):
        done = self.run_neap(PYTHON, "-c", "import sys; print('out'); print('err', file=sys.stderr); sys.exit(7)", check=False)
        self.assertEqual((done.returncode, done.stdout), (7, "out\n"))
        self.assertIn("err\n", done.stderr)
        self.assertEqual(self.recordings(), [])  # no torch: nothing is attached

    def test_a_virtual_environment(self):
        self.command(PYTHON, "-m", "venv", "--without-pip", "venv")
        done = self.run_neap("venv/bin/python", "-c", "import sys; print(sys.prefix != sys.base_prefix)" + USES_CUDA)
        self.assertEqual(done.stdout, "True\n")
        self.assertEqual(len(self.recordings()), 1)

    def test_isolated_mode_is_left_alone_and_said(self):
        for option in ("-I", "-E", "-uS"):
            done = self.run_neap(PYTHON, option, "-c", "print('fine')")
            self.assertEqual(done.stdout, "fine\n")
            self.assertRegex(done.stderr, "ignores (PYTHONPATH|sitecustomize): the program runs, but is not attached")
        self.assertNotIn("ignores", self.run_neap(PYTHON, "-c", "pass", "-I").stderr)

    def test_who_uses_a_device_and_is_not_attached_is_named_with_the_reason(self):
        self.script(HOLDS, "holds.py")
        (self.folder / "holds.sh").write_text("exec " + PYTHON + " -E holds.py\n")
        kept = [f"{name}={self.environment[name]}" for name in ("NEAP_SIM", "XDG_RUNTIME_DIR")]
        kept.append("NEAP_SIM_PATH=" + os.environ["NEAP_SIM_PATH"])
        for command, reason in (
            (["env", "-i", *kept, PYTHON, "holds.py"], "its environment was emptied on the way: NEAP_ATTACH is not in it"),
            (["sh", "holds.sh"], "python -E ignores PYTHONPATH, which loads neap"),
            (["env", "PYTHONPATH=.", PYTHON, "holds.py"], "PYTHONPATH, which loads neap, is not as neap run sets it"),
            ([PYTHON, "holds.py"], "a Python program is attached when it uses PyTorch, or calls neap.attach()"),
        ):
            # It ends because it was seen.
            options = ["--max-device", "100MiB", "--name", "held"]
            done = self.run_neap(*command, options=options, check=False, NEAP_SIM_PATH=os.environ["NEAP_SIM_PATH"])
            result = self.result()
            self.assertEqual((result["outcome"], result["attached"], result["ranks"]), ("stopped early", False, []), done.stderr)
            self.assertRegex(result["not_attached"], r"^process \d+ \(.*holds\.py\): " + reason)
            self.assertIn("  outside   not attached: " + result["not_attached"], done.stderr)

    def test_a_python_that_does_not_find_the_simulator_is_named_with_the_reason(self):
        waits = "import time; time.sleep(0.3)"
        done = self.run_neap("sh", "-c", f"PYTHONPATH=. {PYTHON} -c '{waits}'; exit 1", check=False)
        self.assertRegex(self.result()["not_attached"], r"^process \d+ \(.*sleep.*\): PYTHONPATH, which loads neap, is not as neap run sets")
        self.assertIn("PYTHONPATH=.:$PYTHONPATH", done.stderr)
        self.run_neap(PYTHON, "-c", waits)
        self.assertEqual(self.result()["not_attached"], "")

    def test_a_path_that_pythonpath_cannot_hold_is_said(self):
        odd = self.folder / "a:b"
        (odd / "src").mkdir(parents=True)
        shutil.copy(NEAP, odd / "src" / "neap")
        command = [odd / "src" / "neap", "run", "--folder", "run", "--drain-limit", "1s", "--", PYTHON, "-c", "print('fine')"]
        done = self.command(*command)
        self.assertEqual(done.stdout, "fine\n")
        self.assertIn("python/launch is missing beside this command", done.stderr)
        shutil.copytree(pathlib.Path(NEAP).parents[1] / "python" / "launch", odd / "python" / "launch")
        shutil.rmtree(self.folder / "run")
        done = self.command(*command)
        self.assertEqual(done.stdout, "fine\n")
        self.assertRegex(done.stderr, "PYTHONPATH cannot hold the path .*/a:b/python/launch, for its ':'")

    def test_a_python_that_is_too_old_says_so(self):
        launch = pathlib.Path(LAUNCH) / "sitecustomize.py"
        code = (
            "import sys\nsys.version_info = (3, 8, 18)\n"
            f"exec(compile(open({str(launch)!r}).read(), {str(launch)!r}, 'exec'), {{'__file__': {str(launch)!r}}})\n"
            "import torch\nprint(torch.__name__, len(sys.meta_path))"
        )
        done = self.run_neap(PYTHON, "-I", "-c", f"import sys\nsys.path.insert(0, {self.site!r})\n" + code)
        plain = self.command(PYTHON, "-I", "-c", "import sys; print('torch', len(sys.meta_path))")
        self.assertEqual(done.stdout, plain.stdout)
        self.assertRegex(done.stderr, r"note      process \d+: PyTorch is not attached and not simulated: it needs Python 3\.9 or later, and this is 3\.8\n")

    def test_turned_off(self):
        code = "import sys, torch; print('neap' in sys.modules, [type(f).__name__ for f in sys.meta_path])" + USES_CUDA
        for device in ("cuda", "sim"):
            done = self.run_neap(PYTHON, "-c", code, NEAP_ATTACH="0", NEAP_DEVICE=device)
            plain = self.command(PYTHON, "-c", code)
            # On the simulator neap's finder still waits for torch, because it has to simulate the process that it does not attach to.
            self.assertEqual(done.stdout.replace("'_Attach', ", "" if device == "sim" else "*"), plain.stdout)
            self.assertEqual(self.recordings(), [])

    # Other people's sitecustomize.

    def test_the_users_sitecustomize_runs_in_our_place(self):
        self.script("import sys\nmarker = 'mine'\nprint('customized', __name__)", "own/sitecustomize.py")
        code = "import sys, sitecustomize; print(sitecustomize.marker, sitecustomize.__file__)" + USES_CUDA
        path = f"{self.folder / 'own'}:{self.site}"
        plain = self.command(PYTHON, "-c", code, PYTHONPATH=path)
        done = self.run_neap(PYTHON, "-c", code, PYTHONPATH=path)
        self.assertEqual(done.stdout, plain.stdout)
        self.assertIn("customized sitecustomize", done.stdout)
        self.assertEqual(len(self.recordings()), 1)

    def test_another_copy_of_neap_on_the_path_steps_aside(self):
        """For example a source tree's and a build's: events are counted once. The user's sitecustomize runs
        anyway."""
        other = self.folder / "other"
        shutil.copytree(os.path.join(os.environ["NEAP_SOURCE"], "python", "launch"), other / "launch")
        self.script("import sys; sys.is_users = True", "site/sitecustomize.py")
        self.script(TORCH.replace("lambda function: function()", "lambda function: calls.append(function)") + "\ncalls = []\n",
                    "site/torch.py")
        self.script("import sys, torch; print(len(torch.calls), sys.is_users)")
        alone = self.run_neap(PYTHON, "script.py").stdout
        self.assertRegex(alone, r"^[1-9]\d* True$")
        self.assertEqual(self.run_neap(PYTHON, "script.py", PYTHONPATH=f"{other / 'launch'}:{self.site}").stdout, alone)

    def test_a_sitecustomize_that_fails_fails_as_without_us(self):
        self.script("raise ValueError('theirs')", "own/sitecustomize.py")
        path = f"{self.folder / 'own'}:{self.site}"
        plain = self.command(PYTHON, "-c", "print('on')", PYTHONPATH=path)
        done = self.run_neap(PYTHON, "-c", "print('on')" + USES_CUDA, PYTHONPATH=path)
        self.assertEqual(done.stdout, "on\n")
        self.assertIn(plain.stderr.splitlines()[-1], done.stderr)
        self.assertEqual(len(self.recordings()), 1)

    def test_the_users_usercustomize(self):
        self.script("print('customized', __name__)", "own/usercustomize.py")
        path = f"{self.folder / 'own'}:{self.site}"
        plain = self.command("/usr/bin/python3", "-c", "print('on')", PYTHONPATH=path)
        self.assertIn("customized", plain.stdout)
        done = self.run_neap("/usr/bin/python3", "-c", "print('on')" + USES_CUDA, PYTHONPATH=path)
        self.assertEqual(done.stdout, plain.stdout)
        self.assertEqual(len(self.recordings()), 1)

    def test_paths_of_all_kinds(self):
        shown = "import sys; print([p for p in sys.path if not p.endswith('/site')])" + USES_CUDA
        for more in (
            {"PYTHONSAFEPATH": "1"},
            {"PYTHONPATH": self.site + "::nowhere:"},
            {"HOME": "/proc/nowhere", "PYTHONNOUSERSITE": "1"},
        ):
            plain = self.command(PYTHON, "-c", shown, **more)
            done = self.run_neap(PYTHON, "-c", shown, **more)
            self.assertEqual(self.without_launch(done.stdout), plain.stdout)
            self.assertEqual(len(self.recordings()), 1, more)
        keeps = f"import sys; sys.path[:] = [p for p in sys.path if 'python3' in p] + [{self.site!r}]" + USES_CUDA
        self.run_neap(PYTHON, "-c", keeps)
        self.assertEqual(len(self.recordings()), 1)

    def test_a_prefix_of_its_own(self):
        self.command(PYTHON, "-m", "venv", "--copies", "--without-pip", "conda")
        (site,) = (self.folder / "conda").glob("lib/python3*/site-packages")
        shutil.copy(self.folder / "site" / "torch.py", site)
        entry = self.folder / "conda" / "bin" / "train"
        entry.write_text(f"#!{self.folder}/conda/bin/python\n" + USES_CUDA)
        entry.chmod(0o755)
        hooks = self.folder / "conda" / "etc" / "conda" / "activate.d"
        hooks.mkdir(parents=True)
        (hooks / "libraries.sh").write_text('export LD_LIBRARY_PATH="$CONDA_PREFIX/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"\n')
        # The script that `conda run` writes for a shell: it activates the environment, and keeps all other variables.
        activate = (
            f"export CONDA_PREFIX={self.folder}/conda CONDA_DEFAULT_ENV=conda CONDA_SHLVL=1\n"
            'export PATH="$CONDA_PREFIX/bin:$PATH"\n'
            'for hook in "$CONDA_PREFIX"/etc/conda/activate.d/*.sh; do . "$hook"; done\n'
        )
        (self.folder / "run.sh").write_text(activate + '"$@"\n')
        for words in (["conda/bin/train"], ["sh", "run.sh", "train"], ["sh", "run.sh", "python", "-c", USES_CUDA]):
            self.run_neap(*words, PYTHONPATH="")
            self.assertEqual(len(self.recordings()), 1, words)

    def test_debians_sitecustomize(self):
        if not os.path.exists("/usr/bin/python3") or not list(pathlib.Path("/usr/lib").glob("python3*/sitecustomize.py")):
            self.skipTest("this machine's Python has none")
        code = "import sitecustomize; print(sitecustomize.__file__)"
        plain = self.command("/usr/bin/python3", "-c", code)
        self.assertEqual(self.run_neap("/usr/bin/python3", "-c", code).stdout, plain.stdout)

    def test_a_module_called_neap_of_the_scripts_own(self):
        self.script("value = 'theirs'", "neap.py")
        self.script(USES_CUDA + "import neap\nprint(neap.value)")
        self.assertEqual(self.run_neap(PYTHON, "script.py").stdout, "theirs\n")
        self.assertEqual(len(self.recordings()), 1)

    def test_import_neap_where_it_is_not_installed(self):
        (self.folder / "neap").mkdir()  # such as a clone of the sources
        code = "import neap; print(neap.get_gpu_memory_stats().devices)"
        self.assertEqual(self.run_neap(PYTHON, "-c", code).stdout, "()\n")

    # Processes.

    def test_children_are_followed(self):
        self.script(USES_CUDA, "child.py")
        code = "import subprocess, sys\nfor _ in range(2): subprocess.run([sys.executable, 'child.py'])"
        self.run_neap(PYTHON, "-c", code)
        self.assertEqual(len(self.recordings()), 2)

    def test_however_python_is_started(self):
        self.script(USES_CUDA + "print('done')")
        (self.folder / "train.sh").write_text(f"#!/bin/sh\n{PYTHON} script.py\n")
        (self.folder / "train.sh").chmod(0o755)
        execs = f"import os; os.execv({PYTHON!r}, [{PYTHON!r}, 'script.py'])"
        for words in (["./train.sh"], ["env", PYTHON, "script.py"], [PYTHON, "-c", execs], [PYTHON, "-c", USES_CUDA + execs]):
            done = self.run_neap(*words)
            self.assertEqual(done.stdout, "done\n")
            self.assertEqual(len(self.recordings()), 1, words)

    def test_multiprocessing(self):
        self.script(
            """
            import multiprocessing, sys
            def work():
                import torch
            if __name__ == "__main__":
                context = multiprocessing.get_context(sys.argv[1])
                children = [context.Process(target=work) for _ in range(2)]
                for child in children: child.start()
                for child in children: child.join()
                print([child.exitcode for child in children])
            """
        )
        for method in ("spawn", "fork", "forkserver"):
            done = self.run_neap(PYTHON, "script.py", method)
            self.assertEqual(done.stdout, "[0, 0]\n")
            self.assertEqual(len(self.recordings()), 2, method)

    def test_signals(self):
        for number in (signal.SIGKILL, signal.SIGTERM, signal.SIGSEGV):
            done = self.run_neap(PYTHON, "-c", USES_CUDA + f"import os; os.kill(os.getpid(), {int(number)})", check=False)
            self.assertEqual((done.returncode, self.result()["outcome"]), (128 + number, "signaled"))

    def test_an_interrupt_is_the_programs(self):
        self.script(WAITS + "print('went on')")
        process, _ = self.start(PYTHON, "script.py")
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=BOUND)
        self.assertEqual((process.returncode, out), (130, ""))
        self.assertEqual(err.splitlines()[-1], "KeyboardInterrupt")
        self.assertEqual(self.result()["outcome"], "canceled")

    # Our own failures.

    def test_without_its_library_the_script_runs_and_neap_says_why(self):
        done = self.run_neap(PYTHON, "-c", USES_CUDA + "print('fine')", NEAP_LIBRARY="/nowhere/libneap.so.0")
        self.assertEqual(done.stdout, "fine\n")
        self.assertRegex(done.stderr, r"note      process \d+: PyTorch is not attached: .*/nowhere/libneap\.so\.0")

    def test_a_torch_that_cannot_be_imported(self):
        (self.folder / "own" / "torch").mkdir(parents=True)
        (self.folder / "own" / "torch" / "__init__.py").write_text("raise ImportError('no torch today')")
        code = "try:\n    import torch\nexcept ImportError as e:\n    print(e)\ntry:\n    import nothing\nexcept ImportError as e:\n    print(e)"
        plain = self.command(PYTHON, "-c", code, PYTHONPATH=str(self.folder / "own"))
        self.assertEqual(self.run_neap(PYTHON, "-c", code, PYTHONPATH=str(self.folder / "own")).stdout, plain.stdout)


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a background job of a script ignores it
    unittest.main()
