"""The package on PyTorch's real CUDA allocator, over neap's stand-ins for NVIDIA's libraries: every allocation, statistic and
out-of-memory error is PyTorch's own, and no kernel runs. In this process alone; test_live.py has the command."""

import gc
import glob
import io
import logging
import os
import re
import tempfile
import types
import unittest
import unittest.mock

if __name__ == "__main__":
    os.environ["NEAP_SIM"] = f"mem=4GiB,gpus=2,values=none,world=device-{os.getpid()}"

import neap
import torch
from neap import _limits, _needs, _peaks, _sources
from torch import nn

MIB = 1 << 20
kept_in_a_global = []


def take(count, device="cuda"):
    return torch.zeros(count * MIB, dtype=torch.uint8, device=device)


class Case(unittest.TestCase):
    def setUp(self):
        self.addCleanup(kept_in_a_global.clear)
        gc.collect()
        torch._C._cuda_clearCublasWorkspaces()
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()


class Statistics(Case):
    def test_figures_are_pytorchs(self):
        kept = take(64)
        gone = take(192)
        del gone
        (device,) = neap.get_gpu_memory_stats().devices
        self.assertEqual(
            (device.allocated, device.reserved, device.max_allocated, device.max_reserved),
            (torch.cuda.memory_allocated(), torch.cuda.memory_reserved(), torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved()),
        )
        self.assertEqual((device.allocated, device.max_allocated), (64 * MIB, 256 * MIB))
        self.assertEqual((device.free, device.total), torch.cuda.mem_get_info())
        self.assertEqual((device.index, device.source, device.name), (0, "torch", torch.cuda.get_device_name(0)))
        result = neap.clear_gpu_memory()
        self.assertEqual((result.freed, result.after.allocated), (192 * MIB, 64 * MIB))
        self.assertEqual(torch.cuda.mem_get_info()[0] - device.free, 192 * MIB)
        before = neap.reset_peak_memory_stats()
        self.assertEqual((before.max_allocated, torch.cuda.max_memory_allocated()), (256 * MIB, 64 * MIB))
        del kept

    def test_counters_are_pytorchs_key_by_key(self):
        kept = [take(3), torch.zeros(1000, device="cuda"), take(30)]
        del kept[2]
        self.assertEqual(neap.memory_stats(), dict(torch.cuda.memory_stats()))
        self.assertGreater(len(neap.memory_stats()), 100)
        for device in (0, "cuda:0", torch.device("cuda", 0), torch.device("cuda")):
            self.assertEqual(neap.memory_stats(device), dict(torch.cuda.memory_stats(0)))
        self.assertEqual(neap.memory_summary(), torch.cuda.memory_summary())
        self.assertEqual(neap.memory_summary(0, abbreviated=True), torch.cuda.memory_summary(0, abbreviated=True))
        self.assertEqual((neap.memory_stats(1), neap.memory_summary(1)), ({}, "this process does not use GPU 1\n"))
        self.assertFalse(torch._C._cuda_hasPrimaryContext(1))  # the query has created none
        out = io.StringIO()
        neap.print_cuda_memory_info(file=out)
        self.assertRegex(out.getvalue(), r"^GPU 0 \(Simulated GPU.*\): .* allocated, .* cached, .* allocated at most, .* free\n$")

    def test_the_uuid_is_the_drivers(self):
        known = _sources._driver_uuid(0)
        self.assertEqual((_sources.device_uuid(torch, 0), len(known)), (known, 16))
        with unittest.mock.patch.object(torch.cuda, "get_device_properties", lambda index: types.SimpleNamespace()):  # before 2.4
            self.assertEqual((_sources.device_uuid(torch, 0), _sources.device_uuid(torch, 9)), (known, None))


class Limits(Case):
    def setUp(self):
        super().setUp()
        self.total = torch.cuda.mem_get_info()[1]
        self.addCleanup(torch.cuda.set_per_process_memory_fraction, 1.0)

    def test_a_fraction_limits_and_one_takes_the_limit_away(self):
        (done,) = neap.set_memory_fraction(0.25)
        self.assertEqual((done.limit, _limits.limit_of(torch, 0)), (self.total // 4, self.total // 4))
        with self.assertRaises(torch.OutOfMemoryError) as caught:
            take(1025)
        self.assertTrue(neap.is_out_of_memory(caught.exception))
        neap.set_memory_fraction(1)
        self.assertIsNone(_limits.limit_of(torch, 0))
        take(1025)

    def test_a_limit_of_the_programs_is_known_to_the_byte(self):
        allowed = []
        torch._C._cuda_attach_out_of_memory_observer(lambda device, asked, limit, free: allowed.append(limit))
        for fraction in (0.1, 1 / 3, 0.7, 0.999):
            torch.cuda.set_per_process_memory_fraction(fraction)
            with self.assertRaises(torch.OutOfMemoryError):
                take(4096)
            self.assertEqual(_limits.limit_of(torch, 0), allowed[-1])
        neap.set_memory_fraction(0.5)
        self.assertEqual(_limits.limit_of(torch, 0), self.total // 2)

    def test_what_is_cached_above_the_limit_goes_first(self):
        take(1024)
        neap.set_memory_fraction(0.125)
        self.assertLess(torch.cuda.memory_reserved(), self.total // 8)
        take(256)


class Peaks(Case):
    def use(self, count):
        take(count)

    def test_each_trial_has_its_own_and_the_programs_stays(self):
        self.use(700)
        before = torch.cuda.memory_stats()
        manager = neap.MemoryManager()
        for count in (300, 100, 200):
            with manager.trial():
                self.use(count)
        self.assertEqual([trial.peak for trial in manager.trials], [300 * MIB, 100 * MIB, 200 * MIB])
        after = torch.cuda.memory_stats()
        peaks = [name for name in after if name.endswith(".peak") and not name.startswith("inactive")]  # of splits since then
        self.assertEqual({name: after[name] for name in peaks}, {name: before[name] for name in peaks})
        self.assertEqual(torch.cuda.max_memory_allocated(), 700 * MIB)
        self.assertIn("| 716800 KiB |", torch.cuda.memory_summary())
        if hasattr(torch.accelerator if hasattr(torch, "accelerator") else None, "max_memory_allocated"):
            self.assertEqual(torch.accelerator.max_memory_allocated(), 700 * MIB)
        torch.cuda.reset_peak_memory_stats()  # the program's own
        self.assertEqual(torch.cuda.max_memory_allocated(), 0)
        self.assertIsInstance(torch._C._cuda_memoryStats, types.BuiltinFunctionType)  # PyTorch's own again

    def test_scopes_inside_each_other_and_a_reset_inside(self):
        self.use(500)
        with neap.GPUMemoryContext() as outer:
            self.use(300)
            with neap.GPUMemoryContext() as inner:
                kept = take(100)
            self.assertEqual((inner.peak, inner.delta, torch.cuda.max_memory_allocated()), (100 * MIB, 100 * MIB, 500 * MIB))
            torch.cuda.reset_peak_memory_stats()
            self.assertEqual(torch.cuda.max_memory_allocated(), 100 * MIB)
            self.use(50)
        self.assertEqual((outer.peak, torch.cuda.max_memory_allocated()), (300 * MIB, 150 * MIB))
        del kept
        with self.assertRaises(ValueError), neap.GPUMemoryContext() as failed:
            self.use(60)
            raise ValueError
        self.assertEqual(failed.peak, 60 * MIB)

    def test_what_is_kept_goes_once_it_is_outdone(self):
        self.use(10)
        with neap.GPUMemoryContext() as scope:
            self.use(20)
        self.assertEqual((scope.peak, torch.cuda.max_memory_allocated()), (20 * MIB, 20 * MIB))
        self.assertFalse(_peaks._torch._kept)
        self.assertIsInstance(torch._C._cuda_memoryStats, types.BuiltinFunctionType)


class Holders(Case):
    def forward(self):
        weight = torch.randn(64, 1024, device="cuda", requires_grad=True)
        x = torch.ones(1024, 64, device="cuda")
        return (x @ weight).exp().sum()  # the exp's result is saved, 4 MiB, and x; weight is where the gradient would go

    def test_a_history_of_losses_is_named_with_its_graphs(self):
        for _ in range(3):
            kept_in_a_global.append(self.forward())
        found = [item for item in neap.lingering() if item.saved]
        self.assertEqual([(item.shape, item.kind, item.saved) for item in found], [((), "global", 4 * MIB + 2 * 1024 * 64 * 4)] * 3)
        torch._C._cuda_clearCublasWorkspaces()
        allocated = torch.cuda.memory_allocated()
        named = sum(item.bytes + item.saved for item in neap.lingering())
        self.assertLess(abs(allocated - named), 16 * 1024)  # all of it, apart from rounding
        del found, kept_in_a_global[:]
        self.assertLess(torch.cuda.memory_allocated(), allocated - 12 * MIB)

    def test_a_loss_on_the_host_keeps_its_graph_on_the_device(self):
        kept_in_a_global.append(self.forward().cpu())
        (item,) = [item for item in neap.lingering() if item.saved]
        self.assertEqual((item.device, item.bytes, item.kind), ("cpu", 4, "global"))
        self.assertGreaterEqual(item.saved, 4 * MIB)
        manager = neap.MemoryManager()
        with manager.trial() as trial:
            kept_in_a_global.append(self.forward().cpu())
        self.assertEqual([(item.device, item.holders) for item in trial.result.survivors if item.saved],
                         [("cpu", (f"global kept_in_a_global[1] of module {__name__}",))])  # fmt: skip

    def test_a_detached_output_in_a_cache(self):
        def step(cache, number):
            out = torch.zeros(256, 1024, device="cuda")
            cache[number] = out.detach()
            return out[:1]

        cache = {}
        last = None
        kept_in_a_global.append(cache)
        for number in range(3):
            last = step(cache, number)
        found = [item for item in neap.lingering() if item.bytes == MIB]
        self.assertEqual(sorted(item.holders[0] for item in found), [f"global kept_in_a_global[0][{n}] of module {__name__}" for n in range(3)])
        self.assertEqual(last.shape, (1, 1024))

    def test_what_pins_memory_is_released(self):
        def fail():
            activations = take(256)
            raise ValueError(len(activations))

        try:
            fail()
        except ValueError as error:
            saved = error
        result = neap.clear_gpu_memory(force=True)
        self.assertEqual((result.released, result.freed), (256 * MIB, 256 * MIB))
        self.assertIn("local variable activations of", str(result.lingering[0]))
        del saved

    def test_what_grows(self):
        manager = neap.MemoryManager(memory_cleanup_frequency=1)
        with self.assertLogs("neap", logging.WARNING) as logged:
            for _ in range(6):
                kept_in_a_global.append(self.forward())
                manager.step()
        growing = {item.shape: item for item in manager.growing}[()]
        self.assertGreaterEqual(growing.saved_per_look, 4 * MIB)
        self.assertTrue(any("saved for a backward pass); held by global kept_in_a_global[" in line for line in logged.output), logged.output)


class Moving(Case):
    def model(self):
        model = nn.Sequential(*(nn.Linear(1024, 1024) for _ in range(4))).cuda()
        optimizer = torch.optim.AdamW(model.parameters())
        model(torch.ones(1, 1024, device="cuda")).sum().backward()
        optimizer.step()
        return model, optimizer

    def test_saving_takes_no_device_memory(self):
        model, optimizer = self.model()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        with tempfile.TemporaryDirectory() as folder:
            saved = neap.save_checkpoint(os.path.join(folder, "model.pt"), model, optimizer)
            self.assertEqual(torch.cuda.max_memory_allocated(), before)
            self.assertGreater(saved.bytes, 3 * 4 * 1024 * 1024 * 4)
            loaded = torch.load(saved.path)
        self.assertEqual(loaded["model"]["0.weight"].device.type, "cpu")

    def test_offloading_gives_everything_back_and_brings_it_again(self):
        model, _ = self.model()
        before = torch.cuda.memory_allocated()
        weight = model[0].weight.detach().cpu().clone()
        with neap.offloaded(model):
            self.assertEqual({p.device.type for p in model.parameters()}, {"cpu"})
            self.assertLessEqual(torch.cuda.memory_allocated(), before - 2 * 4 * 1024 * 1024 * 4)
            self.assertTrue(torch.equal(model[0].weight, weight))
        self.assertEqual({p.device.type for p in model.parameters()} | {p.grad.device.type for p in model.parameters()}, {"cuda"})
        self.assertEqual(torch.cuda.memory_allocated(), before)
        self.assertTrue(torch.equal(model[0].weight.cpu(), weight))

    def test_a_model_that_is_done(self):
        model, optimizer = self.model()
        neap.cleanup_model_memory(model, optimizer)
        self.assertIsNone(model[0].weight.grad)
        self.assertEqual(neap.safe_tensor_to_cpu({"w": model[0].weight})["w"].device.type, "cpu")


class Needs(Case):
    """What the hooks record about a model when a request fails."""

    def test_an_optimizer_s_state_before_it_is_there(self):
        cuda = torch.device("cuda", 0)
        for make in (
            lambda p: torch.optim.SGD(p, lr=0.1),
            lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9),
            torch.optim.Adam,
            lambda p: torch.optim.AdamW(p, amsgrad=True),
            lambda p: torch.optim.RMSprop(p, centered=True, momentum=0.9),
            torch.optim.Adagrad,
            torch.optim.Adadelta,
        ):
            model = nn.Sequential(nn.Linear(256, 512, bias=False), nn.Linear(512, 256, bias=False)).cuda()
            model[0].requires_grad_(False)
            optimizer = make([p for p in model.parameters() if p.requires_grad])
            before = _needs.of_optimizers(torch, [optimizer], cuda, model)
            self.assertEqual((before.parameters, before.gradients), (2 * 512 * 1024, 512 * 1024))
            model(torch.zeros(4, 256, device="cuda")).sum().backward()
            optimizer.step()
            held = sum(v.nbytes for s in optimizer.state.values() for v in s.values() if torch.is_tensor(v) and v.dim())
            self.assertEqual(before.state, held, type(optimizer))
            self.assertIn(optimizer, _needs.find_optimizers(torch))
        optimizer = type("Unheard", (torch.optim.Optimizer,), {})(model.parameters(), {})
        self.assertIsNone(_needs.of_optimizers(torch, [optimizer], cuda).state)

    def test_where_the_program_is(self):
        places = []

        class Looks(nn.Module):
            def forward(self, x):
                places.append(_needs.find_place(torch))
                return Backward.apply(x)

        class Backward(torch.autograd.Function):
            @staticmethod
            def forward(_, x):
                return x * 2

            @staticmethod
            def backward(_, gradient):
                places.append(_needs.find_place(torch))
                return gradient

        model = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), Looks(), nn.Linear(8, 8)).cuda()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        optimizer.register_step_pre_hook(lambda *_: places.append(_needs.find_place(torch)))
        model(torch.zeros(4, 8, device="cuda")).sum().backward()
        optimizer.step()
        model._apply(lambda tensor: (places.append(_needs.find_place(torch)), tensor)[1])
        places.append(_needs.find_place(torch))
        phases = [place.phase.name for place in places]
        self.assertEqual([p for i, p in enumerate(phases) if p not in phases[:i]], ["FORWARD", "BACKWARD", "UPDATE", "MODEL", "UNKNOWN"])
        self.assertIs(places[0].model, model)
        self.assertEqual(places[0].done, 3 / 5)
        self.assertEqual([tuple(tensor.shape) for tensor in places[0].batch], [(4, 8)])
        model(torch.zeros(8, 8, device="cuda")[:4])  # a part of the program's data
        self.assertEqual(places[-1].batch, [])
        with unittest.mock.patch.object(torch._C._nn, "cross_entropy_loss", lambda *_: places.append(_needs.find_place(torch))):
            nn.CrossEntropyLoss()(torch.zeros(4, 8, device="cuda"), torch.zeros(4, dtype=torch.long, device="cuda"))
        self.assertEqual((places[-1].phase.name, places[-1].done), ("FORWARD", 1.0))


class TrainingCase(Case):
    def setUp(self):
        super().setUp()
        logging.getLogger("neap").setLevel(logging.CRITICAL)
        self.addCleanup(logging.getLogger("neap").setLevel, logging.NOTSET)
        self.addCleanup(torch.cuda.set_per_process_memory_fraction, 1.0)

    def training(self, batch, **options):
        model = nn.Sequential(nn.Linear(64, 4096), nn.ReLU(), nn.Linear(4096, 4096), nn.ReLU(), nn.Linear(4096, 1)).cuda()
        data = options.pop("data", None) or (torch.randn(batch, 64), torch.randn(batch, 1))
        options = {"batch_size": batch, "ladder": neap.LadderOptions(allow_checkpointing=False), **options}
        return neap.Training(model, torch.optim.SGD(model.parameters(), lr=0.1), nn.functional.mse_loss, data, **options)


class Trainings(TrainingCase):
    def test_one_takes_rungs_until_it_fits_the_limit(self):
        whole = self.training(4096).train()
        self.assertEqual((whole.ooms, whole.steps), (0, 1))
        result = self.training(4096, memory=neap.MemoryOptions(limit=int(whole.peak * 0.7))).train()
        self.assertGreater(result.ooms, 0)
        self.assertEqual((result.steps, result.split.effective), (1, 4096))
        self.assertLess(result.rungs[-1].peak_after, whole.peak * 0.7)
        with self.assertRaises(neap.TrainingOutOfMemory) as caught:
            self.training(4096, memory=neap.MemoryOptions(limit="80 MiB")).train()
        *_, limited = caught.exception.recommendations
        self.assertEqual(limited, "this process is limited to 80.0 MiB of the 3.97 GiB of GPU 0: raise the limit")

    def test_a_model_that_is_too_large_takes_no_rungs(self):
        model = nn.Linear(4096, 8192).cuda()
        data = (torch.zeros(64, 4096), torch.zeros(64, 8192))
        for limit, words in (
            ("400 MiB", "optimizer state 256 MiB); this process can have 400 MiB"),
            ("600 MiB", "optimizer state 256 MiB), and an update takes 128 MiB beside; this process can have 600 MiB"),
        ):
            optimizer = torch.optim.AdamW(model.parameters())
            training = neap.Training(model, optimizer, nn.functional.mse_loss, data, batch_size=64, memory=neap.MemoryOptions(limit=limit))
            with self.assertRaises(neap.TrainingOutOfMemory) as caught:
                training.train()
            text = str(caught.exception)
            self.assertIn("no rung of the ladder would help: the model alone takes 512 MiB (parameters 128 MiB, gradients 128 MiB, ", text)
            self.assertIn(words, text)
            self.assertEqual(training.split.micro_batch, 64)
            kind = "foreach=False in the optimizer" if limit == "600 MiB" else "an optimizer with less state than 256 MiB: SGD with momentum"
            self.assertTrue(caught.exception.recommendations[0].startswith(kind), caught.exception.recommendations)
            optimizer.state.clear()
            model.zero_grad()
            gc.collect()
            torch.cuda.empty_cache()

    def test_memory_that_lies_about_is_named(self):
        kept = [take(20) for _ in range(40)]
        del kept[::2]
        with self.assertRaises(neap.TrainingOutOfMemory) as caught:
            self.training(4096, memory=neap.MemoryOptions(limit=torch.cuda.memory_reserved() + (40 << 20)), ladder=False).train()
        texts = caught.exception.recommendations
        self.assertTrue(any(re.match(r"\d+ MiB were reserved and not in use when it ran out: start with `neap run --enable`", t) for t in texts), texts)

    def test_a_threshold_of_reserved_memory(self):
        logging.getLogger("neap").setLevel(logging.WARNING)
        with self.assertLogs("neap", logging.WARNING) as logged:
            self.training(256, memory=neap.MemoryOptions(threshold_mb=100), epochs=3).train()
        self.assertEqual(len(logged.output), 1, logged.output)
        self.assertRegex(logged.output[0], "Reserved GPU memory passed the threshold of 100 MiB: ... MiB reserved, ... MiB of it allocated")
        with self.assertRaises(ValueError):
            self.training(256, memory=neap.MemoryOptions(threshold_mb=-1))

    def test_its_limit_ends_with_it(self):
        total = torch.cuda.get_device_properties(0).total_memory
        for before in (1.0, 0.75):
            torch.cuda.set_per_process_memory_fraction(before)
            self.training(64, memory=neap.MemoryOptions(limit=0.5)).train()
            self.assertEqual(_limits.limit_of(torch, 0), None if before == 1 else int(before * total))
            with self.assertRaises(neap.TrainingOutOfMemory):
                self.training(4096, memory=neap.MemoryOptions(limit="200 MiB"), ladder=False).train()
            self.assertEqual(_limits.limit_of(torch, 0), None if before == 1 else int(before * total))
        others = neap.CallbackOptions(on_step=lambda *_: torch.cuda.set_per_process_memory_fraction(0.25))
        self.training(64, memory=neap.MemoryOptions(limit=0.5), callbacks=others).train()
        self.assertEqual(_limits.limit_of(torch, 0), int(0.25 * total))

    def test_a_failure_leaves_nothing(self):
        training = self.training(4096, memory=neap.MemoryOptions(limit="200 MiB"), ladder=False)
        before = torch.cuda.memory_allocated()
        with self.assertRaises(neap.TrainingOutOfMemory) as caught:
            training.train()
        torch._C._cuda_clearCublasWorkspaces()
        self.assertLess(torch.cuda.memory_allocated() - before, MIB, caught.exception)


class Leaks(TrainingCase):
    """Trainings whose steps keep 8 MiB each, limited to 720 MiB of their device."""

    def leaking(self, steps, **options):
        """With `cycle` in a reference cycle, which a collection would drop. `on_step` replaces the code that
        keeps."""
        cycle = options.pop("cycle", False)
        gc.disable()
        self.addCleanup(gc.enable)

        def keep(step, loss):
            if cycle:
                one = types.SimpleNamespace(tensor=take(8))
                one.itself = one
            else:
                kept_in_a_global.append(take(8))

        logging.getLogger("neap").setLevel(logging.WARNING)
        callbacks = neap.CallbackOptions(on_step=options.pop("on_step", keep))
        options = {"memory": neap.MemoryOptions(limit="720 MiB"), "shuffle": False, "callbacks": callbacks, **options}
        run = self.training(64, data=(torch.randn(64 * steps, 64), torch.randn(64 * steps, 1)), **options)
        with self.assertLogs("neap", logging.WARNING) as self.logged:
            logging.getLogger("neap").warning("begins")
            self.result = run.train()
        return [record.getMessage() for record in self.logged.records[1:]]

    def test_the_end_is_forecast_and_what_grows_named(self):
        warned = self.leaking(50)
        leak = self.result.leak
        self.assertEqual((leak.device, leak.bytes_per_step), (0, 8 * MIB))
        self.assertTrue(45 < leak.earliest <= leak.ends <= 90, repr(leak))
        self.assertRegex(warned[0], r"^Step \d\d: memory grows by 8\.00 MiB per step \(confidence 99\.99 %, over \d\d steps\): enough memory is left for all 50 steps$")
        self.assertTrue(any("8388608] on cuda:0: " in line and "held by global kept_in_a_global[" in line for line in warned), warned)
        kept_in_a_global.clear()
        warned = self.leaking(70, ladder=False, epochs=2, watch=neap.WatchOptions(on_leak="stop"))
        self.assertRegex(warned[0], r": memory will end at step \d\d( \(\d\d to \d\d, 99 %\))? of 140$")

    def test_it_stops_in_time_with_a_checkpoint(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "model.pt")
            self.leaking(100, watch=neap.WatchOptions(on_leak="stop"), saving=neap.SavingOptions(path=path))
            self.assertEqual(torch.load(path)["step"], self.result.steps)
        self.assertEqual(self.result.ooms, 0)
        self.assertTrue(35 < self.result.steps < self.result.leak.earliest, self.result)
        self.assertRegex(self.result.stopped, r"^memory leaks and will end at step \d\d.* after step \d\d$")

    def test_pieces_between_what_is_kept_end_memory_sooner(self):
        def keep(step, loss):
            return kept_in_a_global.append(take(7))  # PyTorch takes 20 MiB of the device for two of them
        self.leaking(200, watch=neap.WatchOptions(on_leak="stop"), on_step=keep)
        pieces = torch.cuda.memory_stats()["inactive_split_bytes.all.current"]
        self.assertGreater(pieces, 50 * MIB)
        self.assertEqual((self.result.ooms, self.result.rungs), (0, ()))
        self.assertGreater(self.result.steps, 30)

    def test_it_clears_by_force_in_time(self):
        warned = self.leaking(120, watch=neap.WatchOptions(on_leak="clear"), cycle=True)
        self.assertEqual((self.result.steps, self.result.ooms, self.result.stopped), (120, 0, ""))
        self.assertTrue(any(line.startswith("Cleared by force: ") and re.search("room for [2-9][0-9] more", line) for line in warned), warned)
        gc.collect()

    def test_the_last_word_names_the_leak(self):
        def keep(model, batch):
            kept_in_a_global.append(take(8))
            return nn.functional.mse_loss(model(batch[0]), batch[1])

        with self.assertRaises(neap.TrainingOutOfMemory) as caught:
            self.leaking(200, ladder=False, on_step=None, compute=keep)
        (text,) = caught.exception.recommendations
        self.assertRegex(text, r"^mend the leak first: memory grows by 8\.00 MiB per step .*held by global kept_in_a_global\[")

    def test_one_that_ends_in_a_callback(self):
        def keep(step, loss):
            kept_in_a_global.append(take(8))
            take(100)

        with self.assertRaises(torch.OutOfMemoryError):
            self.leaking(200, on_step=keep)
        self.assertIn("Out of memory outside a step. What may help: mend the leak first: memory grows by 8.00 MiB", self.logged.output[-1])

    def test_none_is_found_where_none_is(self):
        warned = self.leaking(60, on_step=None)
        self.assertEqual((warned, self.result.leak), ([], None))
        self.leaking(40, watch=neap.WatchOptions(leaks_every_steps=0))
        self.assertIsNone(self.result.leak)

    def test_wrong_words(self):
        with self.assertRaisesRegex(ValueError, "expected 'warn', 'clear' or 'stop'"):
            self.training(64, watch=neap.WatchOptions(on_leak="restart"))


class TwoDevices(Case):  # at the end: the second one stays in use
    def test_a_second_device_is_used_only_where_it_is_asked_for(self):
        self.assertEqual(_sources.TorchSource(torch).indices(), [0])
        self.assertFalse(torch._C._cuda_hasPrimaryContext(1))
        kept = take(64, "cuda:1")
        self.assertEqual([(d.index, d.allocated) for d in neap.get_gpu_memory_stats().devices if d.allocated], [(1, 64 * MIB)])
        with neap.GPUMemoryContext() as scope:
            more = take(32, "cuda:1")
            other = take(16, "cuda:0")
        self.assertEqual(scope.peak, (64 + 32 + 16) * MIB)
        (done,) = neap.set_memory_fraction(0.5, 1)
        self.assertEqual((done.device, torch.cuda.current_device()), (1, 0))
        self.assertEqual((_limits.limit_of(torch, 0), _limits.limit_of(torch, 1)), (None, done.limit))
        neap.set_memory_fraction(1, 1)
        self.assertEqual(neap.clear_gpu_memory().refused, "")
        del kept, more, other


def forget_world():
    for path in glob.glob(f"/dev/shm/neap-sim-*-device-{os.getpid()}"):
        os.unlink(path)


if __name__ == "__main__":
    torch.set_num_threads(1)
    _limits.watch(torch)
    take(1)
    unittest.addModuleCleanup(forget_world)
    unittest.main(warnings="ignore")
