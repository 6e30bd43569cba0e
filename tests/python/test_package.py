"""The package without torch: on neap's own allocator, over the simulator."""

import io
import json
import logging
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
import types
import unittest
import unittest.mock

if __name__ == "__main__":  # a world of its own, also for the processes it starts
    os.environ["NEAP_SIM"] = f"mem=4GiB,world=package-{os.getpid()}"

import neap
from neap import _divide, _endings, _futile, _leftovers, _levels, _sources, _units

MIB = 1 << 20
kept = []


def fails():
    raise ValueError("on purpose")


def runs_out():
    with neap.Allocator() as allocator:
        allocator.malloc(1 << 40)


def uses(count):
    with neap.Allocator() as allocator:
        allocator.malloc(count)
        return allocator.memory().allocated


def uses_and_stays(count):
    kept.append(neap.Allocator())
    kept[0].malloc(count)


def uses_and_dies(count):
    uses_and_stays(count)
    os.kill(os.getpid(), 9)


def dies():
    os.kill(os.getpid(), 9)


def hangs(folder=None):
    if folder:
        left = os.fork()
        if left == 0:
            signal.pause()
        pathlib.Path(folder, "pids.new").write_text(f"{os.getpid()} {left}")
        os.rename(pathlib.Path(folder, "pids.new"), pathlib.Path(folder, "pids"))
    signal.pause()


def is_killed_and_leaves_a_process(folder):
    threading.Thread(target=lambda: (wait_for(pathlib.Path(folder, "pids")), os.kill(os.getpid(), 9))).start()
    hangs(folder)


def leaves_a_process(folder):
    left = os.fork()
    if left == 0:
        signal.pause()
    pathlib.Path(folder, "pids").write_text(f"{os.getpid()} {left}")


def cannot_be_read():
    return Unreadable()


class Unreadable:
    def __reduce__(self):
        return int, ("no number",)


def wait_for(path):
    for _ in range(6000):
        if path.exists():
            return path
        time.sleep(0.01)
    raise TimeoutError(path)


def gone(folder):
    """None of the processes that wrote their PIDs there runs (a zombie counts as ended)."""
    for pid in wait_for(pathlib.Path(folder, "pids")).read_text().split():
        for _ in range(12000):
            try:
                state = pathlib.Path("/proc", pid, "stat").read_text().rsplit(")", 1)[1].split()[0]
            except (FileNotFoundError, ProcessLookupError):
                break
            if state in "ZX":
                break
            time.sleep(0.01)
        else:
            return False
    return True


class Without(unittest.TestCase):
    """Without torch and without a device in use."""

    def test_importing_loads_no_torch_no_driver_and_starts_no_thread(self):
        code = (
            "import neap, sys, threading; maps = open('/proc/self/maps').read();"
            "print('torch' in sys.modules, 'libcuda' in maps, threading.active_count(), neap.describe())"
        )
        printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
        self.assertEqual(printed, "False False 1 not attached: this process is not attached\n")

    def test_its_version(self):
        self.assertEqual(neap.__version__, neap.version())
        self.assertRegex(neap.__version__, r"^\d+\.\d+\.\d+$")
        with self.assertRaisesRegex(AttributeError, "module 'neap' has no attribute 'nothing'"):
            neap.nothing

    def test_an_allocator_for_pytorch_needs_pytorch(self):
        code = "import sys; sys.modules['torch'] = None\nimport neap\ntry: neap.install_allocator()\nexcept neap.NeapError as e: print(e)"
        printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
        self.assertIn("neap's allocator: PyTorch cannot be imported", printed)

    def test_nothing_is_claimed(self):
        stats = neap.get_gpu_memory_stats()
        self.assertEqual((stats.devices, stats.available, stats.allocated), ((), False, 0))
        self.assertIn("torch is not imported", stats.note)
        self.assertGreater(stats.host, MIB)
        self.assertIsNone(neap.get_cuda_memory_info())
        with self.assertLogs("neap", "WARNING") as logged:
            self.assertEqual(neap.set_memory_fraction(0.5), [])
        self.assertIn("torch is not imported", logged.output[0])
        self.assertEqual(neap.clear_gpu_memory(force=True).freed, 0)
        self.assertEqual(neap.memory_stats(), {})
        self.assertIn("torch is not imported", neap.memory_summary())
        out = io.StringIO()
        neap.print_cuda_memory_info(file=out)
        self.assertIn("torch is not imported", out.getvalue())

    def test_without_a_driver_no_uuid_is_known(self):
        code = "from neap import _sources; print(_sources._driver_uuid(0))"
        printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
        self.assertEqual(printed, "None\n")

    def test_what_was_asked_for_is_seen_without_logging(self):
        code = "import neap\nneap.log_gpu_memory_stats('here')\nwith neap.GPUMemoryContext('scope'): pass\n"

        def printed(code, **more):
            done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env={**os.environ, **more})
            return [line[24:] for line in done.stderr.splitlines()]

        lines = printed(code)
        self.assertEqual(len(lines), 4, lines)
        self.assertRegex(lines[0], r"^neap INFO here: Memory usage: \d\.\d GB$")
        self.assertRegex(lines[2], r"^neap INFO scope: Memory usage: ")
        self.assertEqual(printed(code, NEAP_LOG_LEVEL="warning"), [])
        self.assertEqual(len(printed(code, NEAP_LOG_LEVEL="info")), 4)
        configured = "import logging\nlogging.basicConfig(level=logging.{})\n" + code
        self.assertEqual((len(printed(configured.format("INFO"))), printed(configured.format("WARNING"))), (4, []))
        self.assertEqual(printed(configured.format("INFO"), NEAP_LOG_LEVEL="error"), [])

    def test_the_driver_is_asked_without_torch(self):
        with self.assertLogs("neap", logging.INFO) as logged:
            neap.ExperimentSeriesRunner().run_one("one", uses, 4 * MIB)
        lines = [record.getMessage() for record in logged.records]
        at = lines.index("memory.used [MiB], memory.free [MiB]")
        used, free = map(int, lines[at + 1].split(", "))
        with neap.Allocator() as own:
            self.assertLess(abs(own.memory().total // MIB - used - free), 1024)
        self.assertEqual((lines.count(lines[at]), used), (2, 0))

    def test_a_limit_ends_for_each_allocator(self):
        with neap.Allocator() as first, neap.Allocator() as second:
            first.set_fraction(0.5)
            limit = _levels.Limit(0.25)
            before = _sources.NeapSource().limits()
            limit.begin()
            self.assertEqual({_sources.NeapSource().limits()[one] for one in (first, second)}, {0.25})
            limit.end()
            self.assertEqual(_sources.NeapSource().limits(), before)
            self.assertEqual((before[first], before[second]), (0.5, 1.0))

    def test_wrong_arguments(self):
        for fraction in (0, -1, 1.5, float("nan")):
            with self.assertRaises(ValueError):
                neap.set_memory_fraction(fraction)
        with self.assertRaises(ValueError):
            neap.Allocator(backend="tpu")
        with self.assertRaises(neap.NeapError) as caught:
            neap.Allocator(device=99)
        self.assertEqual(caught.exception.status, neap.Status.ENODEVICE)

    def test_a_notebook_ends_by_a_cell_that_counts_as_done(self):
        shell = unittest.mock.Mock(input_transformers_cleanup=[])
        with unittest.mock.patch.dict(sys.modules, IPython=unittest.mock.Mock(get_ipython=lambda: shell)):
            _endings.end_cells()
            (event, succeed), _ = shell.events.register.call_args
            for error, left in ((SystemExit(0), None), (failure := ValueError(), failure)):
                result = unittest.mock.Mock(error_in_exec=error)
                succeed(result)
                self.assertIs(result.error_in_exec, left)
            self.assertEqual((event, shell.input_transformers_cleanup[0](["1 / 0"])), ("post_run_cell", []))
            del shell.kernel  # IPython in a terminal: SystemExit ends it
            _endings.end_cells()
        _endings.end_cells()
        self.assertEqual(len(shell.input_transformers_cleanup), 1)

    def test_a_worker_of_ray_ends_as_if_its_function_had_returned(self):
        _endings.end_worker()
        runner = unittest.mock.Mock(construct_user_exception_with_traceback=lambda error, exclude_frames: (error, exclude_frames))
        with unittest.mock.patch.dict(sys.modules, {_endings._RAY: runner}):
            _endings.end_worker()
        reported = runner.construct_user_exception_with_traceback
        self.assertIsNone(reported(SystemExit(0), exclude_frames=3))
        for failure in (SystemExit(1), ValueError()):
            self.assertEqual(reported(failure, exclude_frames=3), (failure, 3))

    def test_sizes(self):
        self.assertEqual(_units.parse_size("2 GiB"), 2 << 30)
        self.assertEqual(_units.parse_size("1.5m"), 3 << 19)
        self.assertEqual(_units.parse_size(7), 7)
        for wrong in ("", "GiB", "2 XB", "-1", "1e9"):
            with self.assertRaises(ValueError):
                _units.parse_size(wrong)
        self.assertEqual([_units.size(n) for n in (0, 1023, 1536, 20 * MIB, -MIB)], ["0 B", "1023 B", "1.50 KiB", "20.0 MiB", "-1.00 MiB"])

    def test_the_ladder_keeps_the_effective_batch(self):
        split = neap.Split(12, 1)
        seen = []
        while split is not None:
            self.assertEqual(split.effective, 12)
            seen.append(split.micro_batch)
            split = neap.next_split(split)
        self.assertEqual(seen, [12, 6, 3, 2, 1])
        self.assertEqual(neap.next_split(neap.Split(257, 2)), neap.Split(129, 4, 1, 514))
        self.assertEqual(neap.next_split(neap.Split(129, 4, 2, 514)), neap.Split(65, 8, 2, 514))
        self.assertEqual(neap.next_split(neap.Split(2, 257, 1, 513)), neap.Split(1, 513))
        self.assertEqual(neap.next_split((8, 1)), neap.Split(4, 2, 1))
        for wrong in ((0, 1), (4, -1), (4, 1, 0)):
            with self.assertRaises(ValueError):
                neap.next_split(wrong)

    def test_efficient_settings_are_merged(self):
        os.environ["PYTORCH_CUDA_ALLOC_CONF"] = "garbage_collection_threshold:0.8,expandable_segments:False"
        try:
            done = neap.enable_memory_efficient_settings()
            self.assertEqual(done.applied["PYTORCH_CUDA_ALLOC_CONF"], "set")
            wanted = "garbage_collection_threshold:0.8,expandable_segments:True"
            self.assertEqual(os.environ["PYTORCH_CUDA_ALLOC_CONF"], wanted)
            again = neap.enable_memory_efficient_settings()
            self.assertEqual(again.applied["PYTORCH_CUDA_ALLOC_CONF"], "was active")
        finally:
            del os.environ["PYTORCH_CUDA_ALLOC_CONF"]

    def test_efficient_settings_under_both_names(self):
        names = ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF")
        active = "expandable_segments:True"
        for before, after in (
            (("", "max_split_size_mb:64"), ("max_split_size_mb:64," + active, "max_split_size_mb:64," + active)),
            ((active, "expandable_segments:False"), (active, active)),
            (("", ""), (active, "")),
        ):
            with unittest.mock.patch.dict(os.environ, {n: v for n, v in zip(names, before) if v}):
                self.assertEqual(neap.enable_memory_efficient_settings().applied[names[0]], "set")
                self.assertEqual(tuple(os.environ.get(n, "") for n in names), after)
                self.assertEqual(neap.enable_memory_efficient_settings().applied[names[0]], "was active")


class Divide(unittest.TestCase):
    """--on-oom auto in a program that passes its batch to transformers or Lightning; only what the test needs of
    them."""

    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        batches = type("BatchSampler", (), {"batch_size": 12})
        self.loader = type("DataLoader", (), {"__init__": lambda loader: vars(loader).update(batch_size=12, batch_sampler=batches())})
        torch = types.SimpleNamespace(utils=types.SimpleNamespace(data=types.SimpleNamespace(DataLoader=self.loader, BatchSampler=batches)))
        for patch in (unittest.mock.patch.dict(sys.modules, torch=torch), unittest.mock.patch.dict(os.environ, NEAP_RUN_DIR=self.folder.name),
                      unittest.mock.patch.multiple(_divide._State, parts=8, made=set())):  # fmt: skip
            patch.start()
            self.addCleanup(patch.stop)

    def told(self):
        return (pathlib.Path(self.folder.name) / f"batch.{os.getpid()}").read_text().split()

    def fit(self, model, loader=None, source=None):
        class Trainer:
            accumulate_grad_batches = 2
            limit_train_batches = 100
            val_check_interval = 1.0

            def fit(self, model, train_dataloaders=None, val_dataloaders=None, datamodule=None):
                pass

        _divide._change_trainer(Trainer)
        trainer = Trainer()
        trainer.fit(model, loader, datamodule=source)
        return [trainer.accumulate_grad_batches, trainer.limit_train_batches, trainer.val_check_interval]

    def test_arguments_once(self):
        class Arguments:
            def __init__(self, size, accumulate):
                self.per_device_train_batch_size = size
                self.gradient_accumulation_steps = accumulate
                self.__post_init__()

            def __post_init__(self):
                self.seen = self.per_device_train_batch_size, self.gradient_accumulation_steps

        _divide._change_arguments(Arguments)
        self.assertEqual(Arguments(12, 1).seen, (3, 4))  # as often as it can be halved
        self.assertEqual(Arguments(32, 3).seen, (4, 24))
        names = ["per_device_train_batch_size", "gradient_accumulation_steps"] * 2
        self.assertEqual(self.told(), [f"{name}={value}" for name, value in zip(names, (32, 3, 4, 24))])
        self.assertEqual(Arguments(4, 24).seen, (4, 24))  # a copy
        self.assertEqual(Arguments("auto", 1).seen, ("auto", 1))

    def test_what_a_trainer_fits(self):
        plain = types.SimpleNamespace()
        loader = self.loader()
        self.assertEqual(self.fit(plain, loader), [8, 400, 1.0])
        self.assertEqual((loader.batch_size, loader.batch_sampler.batch_size), (3, 3))
        self.assertEqual(self.told(), ["batch_size=12", "accumulate_grad_batches=2", "batch_size=3", "accumulate_grad_batches=8"])
        source = types.SimpleNamespace(train_dataloader=print, hparams={"batch_size": 16})
        self.assertEqual(self.fit(plain, None, source), [16, 800, 1.0])
        self.assertEqual(source.hparams, {"batch_size": 2})
        model = types.SimpleNamespace(train_dataloader=print, batch_size=8)
        self.assertEqual(self.fit(model), [16, 800, 1.0])
        self.assertEqual(model.batch_size, 1)

    def test_what_is_left_as_it_is(self):
        loader = self.loader()
        loader.batch_sampler = object()
        for model, given in ((types.SimpleNamespace(), loader), (types.SimpleNamespace(batch_size=8), [1]), (types.SimpleNamespace(), None),
                             (types.SimpleNamespace(batch_size=8), types.SimpleNamespace(train_dataloader=print)),
                             (types.SimpleNamespace(train_dataloader=print, batch_size=8, automatic_optimization=False), None)):  # fmt: skip
            self.assertEqual(self.fit(model, given), [2, 100, 1.0])
            self.assertEqual(getattr(model, "batch_size", 8), 8)
        self.assertEqual(loader.batch_size, 12)
        self.assertFalse(os.listdir(self.folder.name))


class OnTheSimulator(unittest.TestCase):
    def setUp(self):
        self.allocator = neap.Allocator()
        self.addCleanup(self.allocator.close)

    def test_clear_gives_back_what_is_cached(self):
        kept = self.allocator.malloc(4 * MIB)
        gone = self.allocator.malloc(16 * MIB)
        self.allocator.free(gone)
        with self.assertLogs("neap", logging.INFO) as logged:
            result = neap.clear_gpu_memory()
        self.assertEqual(result.before.allocated, 4 * MIB)
        self.assertGreaterEqual(result.freed, 16 * MIB)
        self.assertEqual(result.after.allocated, 4 * MIB)
        before = result.before.devices[0]
        after = result.after.devices[0]
        self.assertEqual(after.free - before.free, result.freed)
        lines = [record.getMessage() for record in logged.records]
        self.assertEqual(lines[:2], ["Cleaning up CUDA memory...", "Clearing CUDA cache..."])
        self.assertRegex(lines[2], r"^CUDA memory stats after cleanup: allocated=0\.00GB, max_allocated=0\.02GB, ")
        self.assertEqual(lines[4:6], ["NVIDIA-SMI report:", "memory.used [MiB], memory.free [MiB]"])
        self.assertEqual(lines[6], f"{after.used // MIB}, {after.free // MIB}")
        self.allocator.free(kept)

    def test_cleanups_that_are_taken_again_are_said_to_be_useless(self):
        def cleaned(count, size, keep=0):
            with self.assertLogs("neap", logging.WARNING) as logged:
                logging.getLogger("neap").warning("begins")
                for _ in range(count):
                    kept = self.allocator.malloc(keep) if keep else None
                    self.allocator.free(self.allocator.malloc(size))
                    neap.clear_gpu_memory()
                    if kept:
                        self.allocator.free(kept)
            return [record.getMessage() for record in logged.records[1:]]

        with unittest.mock.patch.object(_futile, "_direct", _futile.Row("by clear_gpu_memory()")):
            (line,) = cleaned(4, 64 * MIB)
        self.assertRegex(line, r"^3 cleanups in a row by clear_gpu_memory\(\) gave 192 MiB back \(192 MiB of it were reserved "
                               r"again\) and took \d+\.\d ms themselves, of \d+\.\d ms since the first: ")  # fmt: skip
        row = _futile.Row("now and then")
        with self.assertNoLogs("neap", logging.WARNING):
            for second in range(100):
                row.add(100, 0, 0.001, float(second))  # they cost a thousandth of the time
        row = _futile.Row("of use")
        with self.assertNoLogs("neap", logging.WARNING):
            for second in range(100):
                row.add(1000 - 3 * second, 1000 - 3 * second - 3, 0.9, float(second))  # nothing is allocated again
        row = _futile.Row("each")
        with self.assertLogs("neap", logging.WARNING) as logged:
            for second in range(100):
                row.add(0, 0, 0.9, float(second))
        self.assertEqual([r.getMessage()[:25] for r in logged.records], ["3 cleanups in a row each ", "30 cleanups in a row each"])

    def test_figures_by_name(self):
        self.allocator.malloc(3 * MIB)
        stats = neap.get_gpu_memory_stats()
        self.assertEqual((stats["allocated"], stats["reserved"]), (stats.allocated, stats.reserved))
        self.assertEqual(neap.get_cuda_memory_info()["allocated"], 3 * MIB)
        with self.assertRaisesRegex(KeyError, "'alocated' is none of allocated, available, "):
            stats["alocated"]

    def test_peaks(self):
        self.allocator.free(self.allocator.malloc(8 * MIB))
        self.assertEqual(neap.reset_peak_memory_stats().max_allocated, 8 * MIB)
        self.assertEqual(neap.get_gpu_memory_stats().max_allocated, 0)

    def test_statistics_have_pytorchs_names(self):
        stats = self.allocator.memory_stats()
        self.assertEqual(len(stats), 122)
        self.allocator.malloc(1000)
        self.assertEqual(self.allocator.memory_stats()["requested_bytes.all.current"], 1000)
        self.assertEqual(self.allocator.memory_stats()["allocated_bytes.all.current"], 1024)

    def test_counters_and_summary(self):
        self.allocator.malloc(5 * MIB)
        with neap.Allocator() as second:  # on the same device
            second.malloc(3 * MIB)
            stats = neap.memory_stats("cuda:0")
            self.assertEqual((len(stats), stats["allocated_bytes.all.current"]), (122, 8 * MIB))
        self.assertEqual(neap.memory_stats(), self.allocator.memory_stats())
        self.assertEqual((neap.memory_stats(7), neap.memory_summary(7)), ({}, "this process does not use GPU 7\n"))
        text = neap.memory_summary()
        self.assertEqual(text, self.allocator.memory_summary())
        self.assertEqual({len(line) for line in text.splitlines()}, {77})
        self.assertIn("| Allocated memory      |   5120 KiB |   5120 KiB |   5120 KiB |      0 B   |\n", text)
        self.assertIn("neap CUDA memory summary, device ID 0", text)
        self.assertEqual((text.count("from large pool"), neap.memory_summary(abbreviated=True).count("pool")), (9, 0))
        for wrong in (-1, "cpu", "cuda:x", 1.5, True):
            with self.assertRaises(ValueError):
                neap.memory_stats(wrong)

    def test_fraction_limits_and_names_itself(self):
        total = self.allocator.memory().total
        (done,) = neap.set_memory_fraction(16 * MIB / total)
        self.assertLessEqual(abs(done.limit - 16 * MIB), 1)
        with self.assertRaises(neap.OutOfMemory) as caught:
            self.allocator.malloc(64 * MIB)
        self.assertTrue(neap.is_out_of_memory(caught.exception))
        self.assertIn("limit", str(caught.exception))
        neap.set_memory_fraction(1)
        self.allocator.malloc(64 * MIB)

    def test_a_threshold_of_reserved_memory(self):
        manager = neap.MemoryManager(memory_threshold_mb=100, memory_cleanup_frequency=1000)

        def warned():
            with self.assertLogs("neap", logging.WARNING) as logged:
                logging.getLogger("neap").warning("begins")
                manager.step()
            return [record.getMessage() for record in logged.records[1:]]

        kept = self.allocator.malloc(90 * MIB)
        self.assertEqual(warned(), [])
        self.allocator.free(self.allocator.malloc(30 * MIB))
        text = "Reserved GPU memory passed the threshold of 100 MiB: 120 MiB reserved, 90.0 MiB of it allocated"
        self.assertEqual((warned(), warned()), ([text], []))  # once
        neap.clear_gpu_memory()
        self.assertEqual(warned(), [])
        self.allocator.free(self.allocator.malloc(30 * MIB))
        self.assertEqual((warned(), manager.cleanups), ([text], []))  # again, after it was below
        self.allocator.free(kept)
        self.assertIn("looks every 1000 steps, threshold 100 MiB", repr(manager))
        self.assertIn("looks every 2 epochs", repr(neap.MemoryManager(memory_cleanup_frequency="2 epochs")))

    def test_cleanups_by_steps_and_by_epochs(self):
        for frequency, wanted in ((2, (2, 0)), ("2 steps", (2, 0)), ("2 epochs", (0, 1)), ("1 epoch", (0, 2))):
            manager = neap.MemoryManager(memory_threshold_mb=10, memory_cleanup_frequency=frequency)
            done = [0, 0]
            for _epoch in range(2):
                for _step in range(2):
                    self.allocator.free(self.allocator.malloc(30 * MIB))
                    done[0] += manager.step() is not None
                self.allocator.free(self.allocator.malloc(30 * MIB))
                done[1] += manager.epoch() is not None
            self.assertEqual(tuple(done), wanted, frequency)

    def test_scope(self):
        with self.assertLogs("neap", logging.INFO) as logged, neap.GPUMemoryContext("inside") as scope:
            self.allocator.free(self.allocator.malloc(2 << 30))
            self.allocator.malloc(1 << 30)
        self.assertEqual((scope.delta, scope.peak), (1 << 30, 2 << 30))
        lines = [record.getMessage() for record in logged.records]
        self.assertRegex(lines[0], r"^inside: Memory usage: \d+\.\d GB \(Δ[+-]\d+\.\d GB\)$")
        self.assertRegex(lines[1], r"^GPU memory: 1\.0 GB allocated, \d\.\d GB cached, 2\.0 GB at most \(Δ\+1\.0 GB, Δ[+-]\d\.\d GB\)$")

    def use(self, count):
        self.allocator.free(self.allocator.malloc(count * MIB))

    def test_a_scopes_peak_is_its_own_and_the_programs_stays(self):
        self.use(700)
        with neap.GPUMemoryContext() as outer:
            for count in (300, 100):
                with neap.GPUMemoryContext() as inner:
                    self.use(count)
                self.assertEqual(inner.peak, count * MIB)
            self.assertEqual(neap.get_gpu_memory_stats().max_allocated, 700 * MIB)  # the program's
            self.assertEqual(self.allocator.memory_stats()["requested_bytes.all.peak"], 700 * MIB)
            kept = self.allocator.malloc(200 * MIB)
        self.assertEqual((outer.peak, outer.after.max_allocated), (300 * MIB, 700 * MIB))
        with neap.GPUMemoryContext() as scope:
            self.use(400)
            neap.reset_peak_memory_stats()  # the program's peaks begin here, the scope's do not
            self.assertEqual(neap.get_gpu_memory_stats().max_allocated, 200 * MIB)
            self.use(50)
        self.assertEqual((scope.peak, neap.get_gpu_memory_stats().max_allocated), (600 * MIB, 250 * MIB))
        self.allocator.free(kept)
        with neap.GPUMemoryContext() as scope:
            with neap.Allocator() as other:
                other.malloc(80 * MIB)
        self.assertEqual(scope.peak, 80 * MIB)

    def test_each_trial_has_its_own_peak(self):
        manager = neap.MemoryManager()
        for count in (300, 100, 200):
            with manager.trial():
                self.use(count)
        self.assertEqual([trial.peak for trial in manager.trials], [300 * MIB, 100 * MIB, 200 * MIB])

    def test_information(self):
        self.allocator.malloc(3 * MIB)
        found = neap.get_cuda_memory_info(0)
        self.assertEqual((found.source, found.allocated, found.index), ("neap", 3 * MIB, 0))
        self.assertIsNone(neap.get_cuda_memory_info(5))
        out = io.StringIO()
        neap.print_cuda_memory_info(file=out)
        self.assertRegex(out.getvalue(), r"^GPU 0 \(.*\): 3\.00 MiB allocated, .* free\n$")
        with self.assertLogs("neap", logging.INFO) as logged:
            neap.log_gpu_memory_stats("before")
        self.assertIn("before: GPU memory: 0.0 GB allocated", logged.output[1])
        kept = self.allocator.malloc(1 << 30)
        with self.assertLogs("neap", logging.INFO) as logged:
            first = neap.log_gpu_memory_stats("after")
            self.allocator.free(kept)
            neap.log_gpu_memory_stats("freed")
            neap.log_gpu_memory_stats("since", first)
        lines = [record.getMessage() for record in logged.records]
        self.assertRegex(lines[0], r"^after: Memory usage: \d\.\d GB \(Δ[+-]\d\.\d GB\)$")
        self.assertRegex(lines[1], r"^after: GPU memory: 1\.0 GB allocated, 0\.0 GB cached, 1\.0 GB at most \(Δ\+1\.0 GB, Δ[+-]0\.0 GB\)$")
        for name, line in (("freed", lines[3]), ("since", lines[5])):
            self.assertRegex(line, f"^{name}: GPU memory: 0\\.0 GB allocated, 1\\.0 GB cached, 1\\.0 GB at most \\(Δ-1\\.0 GB, Δ\\+1\\.0 GB\\)$")

    def test_misuse(self):
        with self.assertRaises(neap.NeapError):
            self.allocator.free(12345)
        self.allocator.close()
        self.allocator.close()
        with self.assertRaises(ValueError):
            self.allocator.malloc(1)
        self.assertEqual(neap.get_gpu_memory_stats().devices, ())

    def test_a_forked_child_leaves_it_alone(self):
        pid = os.fork()
        if pid == 0:
            fine = neap.get_gpu_memory_stats().devices == ()
            try:
                self.allocator.malloc(1)
                fine = False
            except ValueError:
                pass
            self.allocator.close()
            os._exit(0 if fine else 1)
        self.assertEqual(os.waitpid(pid, 0)[1], 0)
        self.allocator.malloc(1)


ATTACHED = """
import subprocess, sys, os, json, neap
neap.attach()
neap.attach()
assert neap.describe() == "attached"
allocator = neap.Allocator()
kept, gone = allocator.malloc(4 << 20), allocator.malloc(16 << 20)
allocator.free(gone)
for _ in range(30):
    asking = subprocess.Popen([os.environ["NEAP"], "clear", "--pid", str(os.getpid()), "--json"], stdout=subprocess.PIPE)
    while asking.poll() is None:
        pass  # the main thread runs, so that the request is served
    if asking.returncode != 75:  # the machine was too busy for it
        break
(device,) = json.load(asking.stdout)["processes"][0]["devices"]
print(device["allocated"], device["freed"] >= 16 << 20)
neap.detach()
print(neap.describe())
"""


class Attached(unittest.TestCase):
    def test_a_program_that_attaches_itself_is_reached(self):
        with tempfile.TemporaryDirectory() as folder:
            environment = {**os.environ, "XDG_RUNTIME_DIR": folder, "NEAP_SIM": f"mem=1GiB,world=attached-{os.getpid()}"}
            done = subprocess.run([sys.executable, "-c", ATTACHED], env=environment, capture_output=True, text=True, timeout=150)
        self.assertEqual(done.stdout, "4194304 True\nnot attached: this process is not attached\n", done.stderr)

    def test_it_can_be_forbidden(self):
        code = "import neap\ntry:\n    neap.attach()\nexcept neap.NeapError as e:\n    print(e.status.name)"
        done = subprocess.run([sys.executable, "-c", code], env={**os.environ, "NEAP_ATTACH": "0"}, capture_output=True, text=True)
        self.assertEqual(done.stdout, "ECANCELED\n", done.stderr)


HOLDS = """
import os, sys
if os.fork():
    os._exit(0)  # so that it is not a descendant of ours
import neap
with neap.Allocator() as allocator:
    allocator.malloc(64 << 20)
    print(os.getpid(), flush=True)
    sys.stdin.read()
"""


class Leftovers(unittest.TestCase):
    def test_what_another_process_of_ours_holds_is_named(self):
        command = [sys.executable, "-c", HOLDS]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
            pid = other.stdout.readline().strip()
            with neap.Allocator() as allocator, self.assertLogs("neap", logging.INFO) as logged:
                _leftovers.clear(allocator.uuid)
            other.stdin.close()
            other.stdout.read()  # until it has ended
        self.assertTrue(any(pid in line for line in logged.output), logged.output)
        with self.assertLogs("neap", logging.WARNING) as logged, unittest.mock.patch.dict(os.environ, NEAP_DEVICE="nothing"):
            _leftovers.clear(bytes(16))
        self.assertIn("Leftovers of earlier runs were not looked for", logged.output[0])


class Checkpoints(unittest.TestCase):
    def setUp(self):
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.folder = pathlib.Path(holder.name)
        for step in range(1, 9):
            path = self.folder / f"step-{step}.pt"
            path.write_bytes(b"x" * step)
            (self.folder / f"step-{step}.json").write_text('{"val_loss": %d}' % abs(step - 2))
            for name in (path, self.folder / f"step-{step}.json"):
                os.utime(name, (time.time() - (30 - step) * 86400,) * 2)

    def there(self):
        return sorted(int(p.stem.split("-")[1]) for p in self.folder.glob("step-*.pt"))

    def test_the_best_and_the_newest_stay(self):
        manager = neap.MemoryManager(max_checkpoints=3, cleanup_older_than_days=7)
        plan = manager.cleanup_checkpoints(self.folder, dry_run=True)
        self.assertEqual(self.there(), list(range(1, 9)))
        done = manager.cleanup_checkpoints(self.folder)
        self.assertEqual(self.there(), [2, 3, 8])
        self.assertEqual((done.kept, done.metric, done.moved), (plan.kept, "val_loss", 5))
        self.assertEqual(str(done), f"{self.folder}: 3 kept, moved 5 to the trash")
        self.assertIn("best 1: val_loss 0", next(c for c in done.checkpoints if c.step == 2).reason)
        self.assertEqual(neap.restore_checkpoints(self.folder, "step-7*"), 1)
        self.assertEqual(self.there(), [2, 3, 7, 8])

    def test_at_most_so_many_whatever_their_age(self):
        for step in range(1, 79):
            (self.folder / f"step-{100 + step}.pt").write_bytes(b"x")
        done = neap.MemoryManager(max_checkpoints=5).cleanup_checkpoints(self.folder)
        self.assertEqual(len(done.kept), 5)
        self.assertIn("step-178.pt", done.kept)
        self.assertIn("step-2.pt", done.kept)  # the best by val_loss
        done = neap.cleanup_checkpoints(self.folder, max_checkpoints=2)
        self.assertEqual(sorted(done.kept), ["step-178.pt", "step-2.pt"])
        self.assertEqual(neap.cleanup_checkpoints(self.folder, 5, max_checkpoints=1, dry_run=True).kept, done.kept)

    def test_files_that_belong_together_and_torn_ones(self):
        (self.folder / "step-8-optimizer.pt").write_bytes(b"o" * 100)
        (self.folder / "step-9.pt").write_bytes(b"PK\3\4 cut off")
        plan = {c.name: c for c in neap.cleanup_checkpoints(self.folder, dry_run=True).checkpoints}
        self.assertEqual(plan["step-8.pt"].parts, ("step-8.pt", "step-8-optimizer.pt"))
        self.assertEqual((plan["step-8.pt"].bytes, plan["step-8.pt"].torn), (108, ""))
        self.assertEqual(plan["step-9.pt"].torn, "its zip archive has no end")

    def test_the_best_is_what_its_trainer_recorded(self):
        folder = self.folder / "run"
        for step, _accuracy in ((10, 0.5), (20, 0.9), (30, 0.6)):
            here = folder / f"checkpoint-{step}"
            here.mkdir(parents=True)
            log = [{"eval_loss": 1 / s, "eval_accuracy": a, "step": s} for s, a in ((10, 0.5), (20, 0.9), (30, 0.6)) if s <= step]
            state = {"global_step": step, "best_metric": 0.9, "best_model_checkpoint": "x/checkpoint-20", "log_history": log}
            (here / "trainer_state.json").write_text(json.dumps(state))
        done = neap.cleanup_checkpoints(folder, max_checkpoints=2)
        self.assertEqual(done.kept, ("checkpoint-30", "checkpoint-20"))
        self.assertEqual(done.source, "Hugging Face's Trainer recorded it in checkpoint-30/trainer_state.json")
        self.assertEqual([c.recorded for c in done.checkpoints if c.name == "checkpoint-20"], [True])

    def test_run_folders(self):
        for name in ("b", "a/version_0"):
            (self.folder / name).mkdir(parents=True)
            (self.folder / name / "epoch=1.ckpt").write_bytes(b"x")
        found = neap.find_checkpoint_folders(self.folder)
        self.assertEqual(found, [str(self.folder / "a/version_0"), str(self.folder / "b")])
        with self.assertRaises(neap.NeapError):
            neap.find_checkpoint_folders(self.folder / "nowhere")

    def test_what_is_young_stays(self):
        self.assertEqual(neap.cleanup_checkpoints(self.folder, older_than_days=60).moved, 0)
        pinned = neap.cleanup_checkpoints(self.folder, keep_best=1, older_than_days=60, delete_rest=True, pins="step-7.pt")
        self.assertEqual((pinned.moved, self.there()), (5, [2, 7, 8]))

    def test_errors(self):
        with self.assertRaises(neap.NeapError) as caught:
            neap.cleanup_checkpoints(self.folder / "nowhere")
        self.assertEqual(caught.exception.status, neap.Status.ENOENT)
        for wrong in ({"mode": "best"}, {"keep_best": -1}, {"older_than_days": -1}, {"older_than_days": float("nan")},
                      {"trash_days": float("inf")}, {"keep_last": -1}, {"grace_minutes": -1},
                      {"older_than_days": 213_504}, {"trash_days": 4000}, {"max_checkpoints": 0}):  # fmt: skip
            with self.assertRaises(ValueError, msg=str(wrong)):
                neap.cleanup_checkpoints(self.folder, **wrong)
        with self.assertRaises(neap.NeapError):
            neap.cleanup_checkpoints(self.folder, metric="no_such_metric", mode="min")
        self.assertEqual(len(self.there()), 8)


class Series(unittest.TestCase):
    def test_each_in_a_process_of_its_own(self):
        runner = neap.ExperimentSeriesRunner()
        results = runner.run(
            [("out", runs_out, {}), ("fails", fails, {}), ("dies", dies, {}), ("uses", uses, {"count": 4 * MIB})]
        )
        self.assertEqual([r.outcome for r in results], ["oom", "failed", "killed", "ok"])
        self.assertIn("ValueError: on purpose", results[1].error)
        self.assertIn("SIGKILL", results[2].error)
        self.assertRegex(repr(results[1]), r"^<ExperimentResult fails: failed after \d+\.\d s: ValueError: on purpose>$")
        self.assertEqual(results[3].value, 4 * MIB)

    def in_a_world_that_drains_late(self, function, **more):
        """The result of one experiment, and what the device held right after it."""
        code = textwrap.dedent("""
            import sys; sys.path[:0] = [sys.argv[1]]
            import neap, json, test_package as t
            with neap.Allocator() as own:
                before = own.memory().free
                result = neap.ExperimentSeriesRunner(**json.loads(sys.argv[3])).run_one("one", getattr(t, sys.argv[2]), 1 << 28)
                held = before - own.memory().free
            print(json.dumps([result.outcome, result.drained, result.drain_seconds, result.drain_note, held]))
            """)
        world = f"mem=4GiB,world=drains-{os.getpid()},release_delay=700ms"
        here = os.path.dirname(os.path.abspath(__file__))
        done = subprocess.run([sys.executable, "-c", code, here, function, json.dumps(more)], stdout=subprocess.PIPE, text=True,
                              check=True, env={**os.environ, "NEAP_SIM": world})  # fmt: skip
        return json.loads(done.stdout)

    def test_the_next_begins_when_memory_is_free_again(self):
        for function, outcome in (("uses_and_stays", "ok"), ("uses_and_dies", "killed")):
            found, drained, seconds, note, held = self.in_a_world_that_drains_late(function)
            self.assertEqual((found, drained, note), (outcome, True, ""))
            self.assertLess(held, 8 * MIB)
            self.assertGreater(seconds, 0)
        _, drained, seconds, note, held = self.in_a_world_that_drains_late("uses_and_dies", drain_limit=0)
        self.assertIs(drained, False)
        self.assertRegex(note, r"^\d+ MiB still held after \d+\.\d s$")
        self.assertGreater(held, 200 * MIB)
        with self.assertRaises(ValueError):
            neap.ExperimentSeriesRunner(drain_limit=-1)

    def test_limits(self):
        runner = neap.ExperimentSeriesRunner(timeout=1.0, stop_on_failure=True)
        results = runner.run([("hangs", hangs, {}), ("never", uses, {"count": 1})])
        self.assertEqual([r.outcome for r in results], ["timeout"])
        self.assertEqual(runner.run_one("local", lambda: 1).outcome, "failed")
        for wrong in (0, -1, float("nan")):
            with self.assertRaises(ValueError):
                neap.ExperimentSeriesRunner(timeout=wrong)

    def test_what_it_started_ends_with_it(self):
        for function, outcome in ((leaves_a_process, "ok"), (is_killed_and_leaves_a_process, "killed")):
            with tempfile.TemporaryDirectory() as folder:
                result = neap.ExperimentSeriesRunner().run_one("leaves", function, folder)
                self.assertEqual(result.outcome, outcome, result.error)
                self.assertTrue(gone(folder))

    def test_a_result_that_cannot_be_read(self):
        result = neap.ExperimentSeriesRunner().run_one("unreadable", cannot_be_read)
        self.assertEqual(result.outcome, "failed")
        self.assertIn("its result cannot be read: ValueError", result.error)

    def test_an_interrupt_while_it_begins_ends_it(self):
        pids = []

        def interrupted(pid):
            pids.append(pid)
            raise KeyboardInterrupt

        with unittest.mock.patch.object(os, "pidfd_open", interrupted, create=True), self.assertRaises(KeyboardInterrupt):
            neap.ExperimentSeriesRunner().run_one("hangs", hangs)
        with self.assertRaises(ChildProcessError):  # it was waited for
            os.waitpid(pids[0], os.WNOHANG)

    def test_the_experiment_ends_with_a_parent_that_is_killed(self):
        with tempfile.TemporaryDirectory() as folder:
            code = "import sys; sys.path[:0] = [sys.argv[2]]; import neap, test_package as t\n"
            code += "neap.ExperimentSeriesRunner().run_one('hangs', t.hangs, sys.argv[1])"
            parent = subprocess.Popen([sys.executable, "-c", code, folder, os.path.dirname(os.path.abspath(__file__))])
            wait_for(pathlib.Path(folder, "pids"))
            parent.kill()
            parent.wait()
            self.assertTrue(gone(folder))

    def test_an_exception_here_ends_the_experiment_and_keeps_the_results(self):
        def interrupt():
            wait_for(pathlib.Path(folder, "pids"))
            os.kill(os.getpid(), signal.SIGINT)

        runner = neap.ExperimentSeriesRunner()
        with tempfile.TemporaryDirectory() as folder:
            thread = threading.Thread(target=interrupt)
            thread.start()
            with self.assertRaises(KeyboardInterrupt):
                runner.run([("uses", uses, {"count": MIB}), ("hangs", hangs, {"folder": folder}), ("never", uses, {"count": 1})])
            thread.join()
            self.assertTrue(gone(folder))
        self.assertEqual([(r.name, r.outcome) for r in runner.results], [("uses", "ok")])


def forget_worlds():
    for name in ("package", "attached", "drains"):
        for path in pathlib.Path("/dev/shm").glob(f"neap-sim-*-{name}-{os.getpid()}"):
            path.unlink(missing_ok=True)


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a background job of a script ignores it
    unittest.addModuleCleanup(forget_worlds)
    unittest.main()
