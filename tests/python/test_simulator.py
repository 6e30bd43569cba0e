"""How PyTorch gets onto the simulator (neap/_simulator.py, sitecustomize, `neap run`), with made-up libraries: what is loaded,
when, in which processes, and the messages if it cannot be. With the real PyTorch: test_runtime.py."""

import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import textwrap
import unittest

NEAP = os.environ["NEAP"]
PACKAGES = os.environ["NEAP_PACKAGES"]
REAL = os.environ["NEAP_SIM_PATH"]
PYTHON = sys.executable
DROPPED = ("LD_", "PYTHON", "NEAP", "RANK", "LOCAL_RANK", "WORLD_SIZE", "CUDA_VISIBLE_DEVICES")
# A stand-in for PyTorch: opens its libraries and prints whose they are.
TORCH = """
import ctypes, os
library = ctypes.CDLL(os.path.join(os.path.dirname(__file__), "lib", "libtorch_cuda.so"))
library.whose.restype = ctypes.c_char_p
whose = library.whose().decode()
"""
SAYS = "import torch; print(torch.whose)"


class Simulator(unittest.TestCase):
    def setUp(self):
        holder = tempfile.TemporaryDirectory(prefix="neap-simulator-")
        self.addCleanup(holder.cleanup)
        self.folder = pathlib.Path(holder.name)
        (self.folder / "run-dir").mkdir(mode=0o700)
        self.sim = self.folder / "sim"
        self.runtime = self.folder / "sim" / "runtime"
        self.runtime.mkdir(parents=True)
        for name in ("libcuda.so.1", "libnvidia-ml.so.1"):
            (self.sim / name).symlink_to(os.path.join(REAL, name))
        for name in ("libcudart.so.12", "libcudart.so.13", "libcublas.so.13", "libcublas.so.12"):
            self.library(self.runtime / name, name, "neap")
        self.torch = self.folder / "site" / "torch"
        self.make_torch(["libcudart.so.13", "libcublas.so.13"])
        world = f"simulator-{os.getpid()}-{self._testMethodName}"[:60]
        self.environment = {
            **{k: v for k, v in os.environ.items() if not k.startswith(DROPPED)},
            "NEAP_SIM_PATH": str(self.sim),
            "NEAP_DEVICE": "sim",
            "NEAP_SIM": f"mem=1GiB,world={world}",
            "XDG_RUNTIME_DIR": str(self.folder / "run-dir"),
            "XDG_STATE_HOME": str(self.folder / "state"),
            "PYTHONPATH": str(self.folder / "site"),
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        self.addCleanup(lambda: [p.unlink(missing_ok=True) for p in pathlib.Path("/dev/shm").glob(f"*{world}*")])

    # Helpers.

    def library(self, path, soname, whose, *needs):
        """A shared object with a function, named after its soname, that tells whose it is."""
        path.parent.mkdir(parents=True, exist_ok=True)
        stem = soname.split(".")[0].replace("-", "_")
        calls = "".join(f"const char *{need.name.split('.')[0]}(void);\n" for need in needs)
        body = f'"{whose}"' if not needs else f"{needs[0].name.split('.')[0]}()"
        name = "whose" if needs else stem
        source = self.folder / "library.c"
        source.write_text(f"{calls}const char *{name}(void) {{ return {body}; }}\n")
        rivals = "-Wl,-rpath,$ORIGIN/../../nvidia/lib"
        subprocess.run(["cc", "-shared", "-fPIC", f"-Wl,-soname,{soname}", rivals, "-o", path, source, "-Wl,--no-as-needed", *needs], check=True)

    def make_torch(self, sonames, init=TORCH):
        """A torch that needs these libraries, with NVIDIA's of the same names next to it, as in an ordinary
        installation."""
        shutil.rmtree(self.folder / "site", ignore_errors=True)
        self.torch.mkdir(parents=True)
        (self.torch / "__init__.py").write_text(init)
        (self.torch / "version.py").write_text("__version__ = '2.15.0+made'\n")
        rivals = []
        for soname in sonames:
            rivals.append(self.folder / "site" / "nvidia" / "lib" / soname)
            self.library(rivals[-1], soname, "nvidia")
        self.library(self.torch / "lib" / "libtorch_cuda.so", "libtorch_cuda.so", "torch", *rivals)

    def command(self, *words, status=0, **more):
        environment = {k: v for k, v in {**self.environment, **more}.items() if v is not None}
        done = subprocess.run([str(w) for w in words], cwd=self.folder, env=environment, capture_output=True, text=True, timeout=150)
        self.assertEqual(done.returncode, status, done.stderr)
        return done

    def python(self, code, **more):
        """With the variables of `neap sim env`, without `neap run`."""
        launch = os.path.join(PACKAGES, "launch")
        path = {"PYTHONPATH": f"{launch}:{self.folder / 'site'}", "NEAP_SIM_RUNTIME": str(self.runtime)}
        return self.command(PYTHON, "-c", textwrap.dedent(code), **{**path, **more})

    def run_neap(self, *words, options=(), **more):
        shutil.rmtree(self.folder / "run", ignore_errors=True)
        return self.command(NEAP, "run", "--folder", "run", "--drain-limit", "1s", *options, "--", *words, **more)

    def result(self):
        return json.loads((self.folder / "run" / "result.json").read_text())

    # What is loaded.

    def test_ours_are_taken_by_their_sonames(self):
        self.assertEqual(self.python(SAYS, NEAP_DEVICE="").stdout, "nvidia\n")
        done = self.python(SAYS + "\nimport os\nprint(*sorted({os.path.realpath(l.split()[5]) for l in open('/proc/self/maps') if '/libcu' in l}), sep='\\n')")
        self.assertEqual((done.stdout.splitlines()[0], done.stderr), ("neap", ""))
        mapped = done.stdout.splitlines()[1:]
        self.assertEqual(mapped, sorted(os.path.realpath(p) for p in (self.sim / "libcuda.so.1", self.runtime / "libcudart.so.13", self.runtime / "libcublas.so.13")))

    def test_they_find_each_other(self):
        self.assertEqual(self.python("import torch, ctypes; print(hasattr(ctypes.CDLL(None), 'libcublas'))").stdout, "True\n")

    def test_the_major_is_the_one_that_torch_needs(self):
        self.make_torch(["libcudart.so.12", "libcublas.so.12"])
        done = self.python(SAYS + "\nprint(sum('/libcudart' in l for l in open('/proc/self/maps')) > 0, any('so.13' in l for l in open('/proc/self/maps')))")
        self.assertEqual(done.stdout, "neap\nTrue False\n")

    def test_as_neap_sim_env_says(self):
        done = self.command("sh", "-c", f'eval "$({NEAP} sim env)"; echo "$NEAP_SIM_RUNTIME"; exec {PYTHON} -c "{SAYS}"')
        self.assertEqual(done.stdout, f"{os.path.realpath(self.runtime)}\nneap\n")
        shutil.rmtree(self.runtime)
        self.assertIn("install neap whole", self.command(NEAP, "sim", "env", status=69).stderr)

    def test_a_call_of_its_own(self):
        code = f"import sys; sys.path.insert(0, {PACKAGES!r})\nfrom neap import _simulator\nprint(len(_simulator.load().paths), _simulator.load().missing)\n" + SAYS
        self.assertEqual(self.command(PYTHON, "-c", code).stdout, "4 ()\nneap\n")

    def test_children_are_simulated_too(self):
        code = """
            import multiprocessing, subprocess, sys
            def work():
                import torch
                print(torch.whose, flush=True)
            if __name__ == "__main__":
                subprocess.run([sys.executable, "-c", "import torch; print(torch.whose)"])
                for method in ("spawn", "fork", "forkserver"):
                    child = multiprocessing.get_context(method).Process(target=work)
                    child.start()
                    child.join()
        """
        (self.folder / "script.py").write_text(textwrap.dedent(code))
        done = self.run_neap(PYTHON, "script.py")
        self.assertEqual(done.stdout, "neap\n" * 4)
        self.assertEqual(len(list((self.folder / "run").glob("simulated.*"))), 4)
        self.assertEqual(done.stderr.count("simulated: no kernel runs ("), 1)

    # Messages.

    def test_the_run_says_so_once_and_in_its_result(self):
        tally = "values cuBLAS cublasSgemm 3 0 0\nworkspace cuDNN cudnnX 12 0 209920\nrefused cuBLAS cublasXt 1 0 0\nbroken line\n"
        code = SAYS + f"\nimport os\nopen(os.environ['NEAP_RUN_DIR'] + '/simulated.%d' % os.getpid(), 'w').write({tally!r})"
        done = self.run_neap(PYTHON, "-c", code)
        self.assertEqual(done.stdout, "neap\n")
        self.assertRegex(done.stderr, r"neap WARNING simulated: no kernel runs \(Simulated GPU 1024 MiB\); files are written for real\n")
        summary = "no kernel ran; workspaces not modelled: cuDNN cudnnX (12 calls, 0 B to 205 KiB each); refused: cuBLAS cublasXt (1 call); 3 results of library calls read as zeros"
        self.assertEqual(self.result()["simulated"], summary)
        self.assertIn(f"  simulated {summary}\n", done.stderr)
        shown = self.command(NEAP, "history", self.result()["run_id"]).stdout
        self.assertIn(f"\nSimulated\n  {summary}\n", shown)
        self.assertEqual(self.run_neap(PYTHON, "-c", SAYS, options=["--quiet"]).stderr, "")

    def test_without_torch_nothing_is_said(self):
        done = self.run_neap(PYTHON, "-c", "print('fine')")
        self.assertNotIn("simulated", done.stderr)
        self.assertEqual(self.result()["simulated"], "")

    def test_any_program_is_led_to_the_simulator(self):
        sim = os.path.realpath(self.sim)
        both = f"{sim}:{os.path.realpath(self.runtime)}"
        code = "import os; print(os.environ.get('LD_LIBRARY_PATH'))"
        (self.folder / "script").write_text(f"#!/usr/bin/env {PYTHON}\n{code}\n")
        (self.folder / "script").chmod(0o755)
        opens = "import ctypes; ctypes.CDLL('libnvidia-ml.so.1'); print(ctypes.CDLL('libcuda.so.1').cuInit(0))"
        for words, more, told in (
            (("printenv", "LD_LIBRARY_PATH"), {}, both),
            (("printenv", "LD_LIBRARY_PATH"), {"LD_LIBRARY_PATH": "/own"}, f"{both}:/own"),
            ((PYTHON, "-c", code), {}, sim),  # the launcher loads the others, or refuses
            (("./script",), {}, sim),
            ((PYTHON, "-c", code), {"NEAP_DEVICE": "cuda"}, "None"),
            ((PYTHON, "-c", opens), {}, "0"),
        ):
            self.assertEqual(self.run_neap(*words, **more).stdout, told + "\n", words)

    def test_an_estimate_without_pytorch_is_what_the_driver_gave(self):
        (self.folder / "script.py").write_text(textwrap.dedent("""
            import ctypes, os, signal
            cuda, context, address = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p(), ctypes.c_uint64()
            assert not cuda.cuInit(0) and not cuda.cuCtxCreate_v2(ctypes.byref(context), 0, 0)
            for bytes in (300 << 20, 100 << 20):
                assert not cuda.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(bytes))
            assert not cuda.cuMemFree_v2(address) and not cuda.cuCtxDestroy_v2(context)
            os._exit(0)
        """))
        command = [NEAP, "estimate", "--in-place", "--json"]
        told = json.loads(self.command(*command, "--gpu", "h100-80gb,t4-16gb", "--", PYTHON, "script.py").stdout)
        self.assertEqual((told["backend"], told["memory_peak"], told["contexts"], told["processes"]), ("driver", 400 << 20, 1, 1))
        self.assertEqual([gpu["fits"] for gpu in told["gpus"]], ["yes", "yes"])
        self.assertLess(told["gpus"][1]["low_bytes"], told["gpus"][0]["low_bytes"])  # by its context
        self.command(*command, "--max-memory", "600MiB", "--", PYTHON, "script.py", status=1)
        done = self.command(NEAP, "estimate", "--gpu", "t4-16gb", "--in-place", "--", PYTHON, "script.py")
        self.assertRegex(done.stdout, r"memory      400 MiB\n  contexts    1, of 1 process\n\nGPU .*\nt4-16gb +15\.0 GiB  510 MiB to \d+ MiB +yes\n")

    def test_not_attached_but_simulated(self):
        done = self.run_neap(PYTHON, "-c", SAYS, NEAP_ATTACH="0")
        self.assertEqual(done.stdout, "neap\n")

    def test_on_the_real_device_nothing_is_touched(self):
        done = self.run_neap(PYTHON, "-c", SAYS, NEAP_DEVICE="cuda", NEAP_SIM_RUNTIME=str(self.runtime))
        self.assertEqual(done.stdout, "nvidia\n")

    # A PyTorch that cannot be simulated.

    def refused(self, words, *command):
        """The script runs as it would without neap, and a note gives the reason."""
        done = self.run_neap(*(command or (PYTHON, "-c", SAYS)))
        self.assertEqual(done.stdout, "nvidia\n")
        self.assertRegex(done.stderr, r"  note      process \d+: PyTorch is not simulated: " + words)
        self.assertEqual(self.result()["simulated"], "")

    def test_a_build_without_cuda(self):
        self.make_torch(["libmkl.so.2"])
        self.refused(r"PyTorch 2\.15\.0\+made \(\S*/site/torch\) was built without CUDA and uses no GPU, simulated or not: install a CUDA build")

    def test_a_cuda_that_is_too_old(self):
        self.make_torch(["libcudart.so.11.0"])
        self.refused(r"PyTorch 2\.15\.0\+made needs libcudart\.so\.11\.0, and neap's stand-ins are libcudart\.so\.12, libcudart\.so\.13: CUDA 12 and 13 alone")

    def test_two_runtimes_at_once(self):
        self.make_torch(["libcudart.so.12", "libcudart.so.13"])
        self.refused(r"PyTorch 2\.15\.0\+made needs libcudart\.so\.12 and libcudart\.so\.13, ")
        done = self.run_neap("sh", "-c", f"{PYTHON} -c '{SAYS}'")  # its path leads to the stand-ins anyway
        self.assertEqual(done.stdout, "neap\n")
        self.assertRegex(done.stderr, r"note      process \d+: PyTorch is only in part simulated: PyTorch 2\.15\.0\+made needs")

    def test_a_rival_that_was_there_first(self):
        rival = self.folder / "site" / "nvidia" / "lib" / "libcudart.so.13"
        self.refused(rf"{rival} was loaded before PyTorch", PYTHON, "-c", f"import ctypes; ctypes.CDLL({str(rival)!r})\n" + SAYS)

    def test_a_stand_in_that_cannot_be_loaded(self):
        (self.runtime / "libcublas.so.13").write_text("no library")
        self.refused("a stand-in for an NVIDIA library cannot be loaded: .*libcublas.so.13")  # libcudart is not kept either

    def test_stand_ins_that_are_missing(self):
        for name in os.listdir(self.runtime):
            (self.runtime / name).unlink()
        self.refused(r"neap's stand-ins for NVIDIA's libraries are not there \(.*\): install neap whole")
        done = self.python(SAYS)
        self.assertEqual(done.stdout, "nvidia\n")
        self.assertRegex(done.stderr, "^neap: PyTorch is not simulated: neap's stand-ins")

    def test_one_that_torch_needs_and_neap_does_not_have(self):
        self.make_torch(["libcudart.so.13", "libnvnew.so.7"])
        done = self.run_neap(PYTHON, "-c", SAYS)  # NVIDIA's is there
        self.assertEqual(done.stdout, "neap\n")
        self.assertRegex(done.stderr, r"  note      process \d+: PyTorch uses NVIDIA's own libnvnew\.so\.7: neap has no stand-in for it\n")
        (self.folder / "site" / "nvidia" / "lib" / "libnvnew.so.7").unlink()
        done = self.run_neap(PYTHON, "-c", SAYS, status=1)
        self.assertIn("OSError: libnvnew.so.7: cannot open shared object file", done.stderr)
        self.assertRegex(done.stderr, r"  note      process \d+: PyTorch also needs libnvnew\.so\.7, and neap has no stand-in for it\n")

    def test_a_namesake_of_torch(self):
        shutil.rmtree(self.torch)
        (self.folder / "site" / "torch.py").write_text("whose = 'mine'")
        done = self.run_neap(PYTHON, "-c", SAYS)
        self.assertEqual(done.stdout, "mine\n")
        self.assertNotIn("simulated", done.stderr)

    def test_what_is_no_library_needs_nothing(self):
        code = f"import sys; sys.path.insert(0, {PACKAGES!r})\nfrom neap._simulator import needed_by\n"
        whole = (self.torch / "lib" / "libtorch_cuda.so").read_bytes()
        (self.folder / "damaged").mkdir()
        for length in (0, 3, 64, 100, 500, 4000):
            (self.folder / "damaged" / str(length)).write_bytes(whole[:length])
        (self.folder / "damaged" / "offsets").write_bytes(whole[:32] + b"\xff" * 32 + whole[64:])
        code += f"import glob\nprint(needed_by({str(self.torch / 'lib' / 'libtorch_cuda.so')!r})[:2])\nprint([needed_by(p) for p in glob.glob('damaged/*')])"
        whole_ones, damaged = self.command(PYTHON, "-c", code).stdout.splitlines()
        self.assertEqual(whole_ones, "['libcudart.so.13', 'libcublas.so.13']")
        self.assertEqual(damaged, str([[]] * 7))


if __name__ == "__main__":
    unittest.main()
