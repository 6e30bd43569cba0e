"""Ranks that train together (gloo, two processes): whatever one of them does, no other waits for ever. Each rank runs
all scenarios in turn, over one process group for as long as it lasts, and prints the results."""

import datetime
import gc
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time
import unittest
import unittest.mock
import warnings

warnings.filterwarnings("ignore")
import neap
import torch
import torch.distributed as dist
from neap import _ranks, memory
from test_torch import Blocks, OutOnce, data, training

BOUND = 2000  # seconds, for all scenarios; they take a few, on a busy machine some minutes
PATIENCE = 600  # seconds that a rank waits for a slow one
OUT = "CUDA out of memory. Tried to allocate 20.00 MiB."


def out_of_memory(*_, **__):
    raise torch.OutOfMemoryError(OUT)


def wait_for(path):
    for _ in range(100 * PATIENCE):
        if path.exists():
            return
        time.sleep(0.01)
    raise TimeoutError(path)


def weights_of(model):
    return float(sum(p.detach().double().pow(2).sum() for p in model.parameters()))


class RunsOutBackward(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.view_as(x)

    @staticmethod
    def backward(ctx, gradient):
        if len(gradient) > 2:
            out_of_memory()
        return gradient


class Broken:
    """The work of a collective that never began, and fails."""

    def wait(self, *_):
        raise self.error

    def __init__(self, error):
        self.error = error


class Scenarios:
    """What rank 1 does (rank 0 if it says so); every rank trains Blocks() on three steps of eight samples."""

    def __init__(self, rank, folder):
        self.rank = rank
        self.folder = folder
        self.here = rank == 1
        self.patches = []
        self.weights = None

    def patch(self, where, name, value):
        patch = unittest.mock.patch.object(where, name, value)
        patch.start()
        self.patches.append(patch)

    def train(self, model=None, **more):
        model = model or Blocks()
        result = training(model, **{"batch_size": 4, "rank_timeout": PATIENCE, **more}).train()
        self.weights = weights_of(model)
        return result

    def gradients_fail(self, how):
        """The exchange of gradients, not the agreements, which have a group of their own."""
        real = dist.all_reduce
        if self.here:
            self.patch(dist, "all_reduce", lambda *a, **n: real(*a, **n) if n.get("group") else how(*a, **n))

    # In agreement, all ranks take a rung or end an epoch.

    def forward_runs_out(self):
        return self.train(Blocks(room=3 if self.here else None))

    def backward_runs_out(self):
        model = Blocks()
        if self.here:
            model.head.register_forward_hook(lambda m, i, out: RunsOutBackward.apply(out))
        return self.train(model)

    def a_layer_is_not_used(self):
        model = Blocks()
        if self.here:
            model.layers[-1].forward = lambda x: x
        return self.train(model)

    def its_gradients_run_out(self):
        model = Blocks()
        real = torch.zeros_like
        calls = []

        def once(value, **more):
            calls.append(1)
            return out_of_memory() if len(calls) == 1 else real(value, **more)

        if self.here:
            model.layers[-1].forward = lambda x: x
            self.patch(torch, "zeros_like", once)
        return self.train(model)

    def samples_run_out(self):
        calls = []
        x, y = data()

        class Samples:
            def __len__(self):
                return len(x)

            def __getitem__(samples, index):
                calls.append(index)
                if self.here and len(calls) == 2:
                    out_of_memory()
                return x[index], y[index]

        return self.train(data=Samples())

    def data_ends_early(self):
        batches = [tuple(part[n : n + 4] for part in data()) for n in range(0, 24, 4)]
        return self.train(data=Once(batches[: 2 if self.here else 3]))

    def uneven_batches(self):
        x, y = data(12)
        mine = slice(0, 4) if self.here else slice(4, 12)
        return self.train(data=Once([(x[mine], y[mine])]))

    def other_weights(self):
        model = Blocks()
        if self.here:
            with torch.no_grad():
                model.head.weight.add_(1)
        return self.train(model)

    # Failing: all do.

    def forward_fails(self):
        model = Blocks()
        if self.here:
            model.head.register_forward_pre_hook(lambda *_: torch.mm(torch.zeros(2, 3), torch.zeros(2, 3)))
        return self.train(model)

    def exchange_runs_out(self):
        self.gradients_fail(out_of_memory)
        return self.train()

    def first_exchange_runs_out(self):
        if self.here:
            self.patch(dist, "broadcast", out_of_memory)
        return self.train()

    def exchange_breaks_inside(self):
        self.gradients_fail(lambda *a, **n: Broken(torch.OutOfMemoryError(OUT)))
        return self.train()

    def update_runs_out(self):
        model = Blocks()
        kind = OutOnce if self.here else torch.optim.SGD
        return self.train(model, optimizer=kind(model.parameters(), lr=0.1))

    def calls_back(self, **callbacks):
        return self.train(callbacks=neap.CallbackOptions(**callbacks))

    def checkpoint_fails_on_rank_0(self):
        return self.train(saving=neap.SavingOptions(path=self.folder / "nowhere" / "model.pt"))

    def callback_fails(self):
        return self.calls_back(on_step=lambda step, loss: 1 / (2 - step) if self.here else None)

    def last_callback_fails(self):
        return self.calls_back(on_epoch=lambda epoch: 1 / 0 if self.here else None)

    def loader_fails(self):
        def batches():
            yield tuple(part[:4] for part in data())
            if self.here:
                raise OSError("the disk is gone")
            yield tuple(part[:4] for part in data())

        return self.train(data=batches())

    def cleanup_fails(self):
        real = memory.clear_and_log
        calls = []

        def second(*a, **n):
            calls.append(1)
            if self.here and len(calls) == 2:
                raise RuntimeError("CUDA error: an illegal memory access")
            return real(*a, **n)

        self.patch(memory, "clear_and_log", second)
        return self.train(Blocks(room=3))

    def interrupted(self):
        def interrupt(*_):
            raise KeyboardInterrupt

        return self.calls_back(on_step=interrupt if self.here else None)

    def the_ladders_end_of_one(self):
        return self.train(Blocks(room=0 if self.here else None), ladder=not self.here)

    def different_trainings(self):
        return self.train(epochs=1 + self.rank)

    def does_not_answer(self):
        def stuck(step, loss):
            if self.here:
                (self.folder / "stuck").touch()
                wait_for(self.folder / "waited")
            else:
                wait_for(self.folder / "stuck")
                ranks._timeout = datetime.timedelta(seconds=2)  # short now: from here on the other rank waits for this one
                dist.distributed_c10d._set_pg_timeout(ranks._timeout, ranks._group)

        run = training(Blocks(), batch_size=4, rank_timeout=PATIENCE, callbacks=neap.CallbackOptions(on_step=stuck))
        ranks = run._ranks
        try:
            return run.train()
        finally:
            (self.folder / "waited").touch()

    def does_not_begin(self):
        if self.here:
            wait_for(self.folder / "given up")
            return "did not begin"
        try:
            return self.train(rank_timeout=2)
        finally:
            (self.folder / "given up").touch()

    def is_gone(self):
        return self.calls_back(on_step=(lambda *_: os._exit(0)) if self.here else None)


class Once:
    """Batches, not a list: its items would be samples."""

    def __init__(self, batches):
        self.batches = batches

    def __iter__(self):
        return iter(self.batches)


AGREED = ["forward_runs_out", "backward_runs_out", "a_layer_is_not_used", "its_gradients_run_out", "samples_run_out",
          "data_ends_early", "uneven_batches", "other_weights"]  # fmt: skip
ELSEWHERE = "RankFailed: another rank failed (rank 1): this one stops as well"
FAILED = {  # the texts of rank 0 and rank 1
    "forward_fails": (ELSEWHERE, "RuntimeError: "),
    "exchange_runs_out": (ELSEWHERE, "OutOfMemoryError: CUDA out of memory"),
    "first_exchange_runs_out": ("RankFailed: another rank ", "OutOfMemoryError: CUDA out of memory"),
    "exchange_breaks_inside": ("RankFailed: another rank failed in an exchange, or is gone", "OutOfMemoryError: CUDA out"),
    "update_runs_out": (ELSEWHERE, "TrainingOutOfMemory: memory ran out in the optimizer's update, which other ranks may"),
    "checkpoint_fails_on_rank_0": ("NeapError: ", "RankFailed: another rank failed (rank 0)"),
    "callback_fails": (ELSEWHERE, "ZeroDivisionError"),
    "last_callback_fails": (ELSEWHERE, "ZeroDivisionError"),
    "loader_fails": (ELSEWHERE, "OSError: the disk is gone"),
    "cleanup_fails": (ELSEWHERE, "RuntimeError: CUDA error: an illegal memory access"),
    "interrupted": (ELSEWHERE, "KeyboardInterrupt"),
    "the_ladders_end_of_one": (ELSEWHERE, "TrainingOutOfMemory: memory ran out at step 1 and the ladder is off: CUDA out"),
    "different_trainings": ("ValueError: the ranks were given different trainings: ", "ValueError: the ranks were given"),
    "does_not_answer": ("RankFailed: another rank is gone, or did not answer within 2 s: ", "RankFailed: another rank"),
    "does_not_begin": ("RankFailed: not all ranks began to train within 2 s: ", "did not begin"),
    "is_gone": ("RankFailed: another rank is gone, or did not answer within 600 s: ", None),  # the last: one rank is left
}


def be_a_rank(rank, folder):
    torch.set_num_threads(1)
    _ranks._LEAVE_SECONDS = PATIENCE
    gc.freeze()  # objects from the imports need not be searched in each of the many collections
    for name in [*AGREED, *FAILED]:
        if not dist.is_initialized():  # the first scenario, or one after a scenario whose exchange broke
            dist.init_process_group("gloo", init_method=f"file://{folder}/{name}", rank=rank, world_size=2)
        scenarios = Scenarios(rank, folder)
        try:
            result = getattr(scenarios, name)()
            said = result if isinstance(result, str) else [result.split.micro_batch, result.steps, result.ooms]
        except BaseException as error:
            said = f"{type(error).__name__}: {error}"
        for patch in scenarios.patches:
            patch.stop()
        print(json.dumps([name, said, scenarios.weights]), flush=True)
        if name in ("does_not_begin", "first_exchange_runs_out") and dist.is_initialized():  # only one rank has this group
            dist.destroy_process_group()


def started(rank, folder):
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    command = [sys.executable, "-W", "ignore", __file__, "--rank", str(rank), folder]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


class Ranks(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        with tempfile.TemporaryDirectory() as folder:
            processes = [started(rank, folder) for rank in range(2)]
            end = time.monotonic() + BOUND
            outputs = []
            for process in processes:
                try:
                    outputs.append(process.communicate(timeout=max(end - time.monotonic(), 1)))
                except subprocess.TimeoutExpired:
                    process.kill()
                    outputs.append(process.communicate())
        cls.errors = "\n".join(err[-3000:] for _, err in outputs)
        cls.said = [{name: rest for name, *rest in map(json.loads, out.splitlines())} for out, _ in outputs]

    def both(self, name):
        for rank in range(2):
            self.assertIn(name, self.said[rank], f"rank {rank} hangs in it, or before\n{self.errors}")
        return self.said[0][name], self.said[1][name]

    def test_all_do_the_same(self):
        expected = {"forward_runs_out": [2, 3, 1], "backward_runs_out": [2, 3, 1], "a_layer_is_not_used": [4, 3, 0],
                    "its_gradients_run_out": [2, 3, 1], "samples_run_out": [2, 3, 1], "data_ends_early": [4, 2, 0],
                    "other_weights": [4, 3, 0]}  # fmt: skip
        for name, outcome in expected.items():
            with self.subTest(name):
                one, other = self.both(name)
                self.assertEqual(one, other)
                self.assertEqual(one[0], outcome)

    def test_less_is_the_same(self):
        """After a rung, ranks that began differently or have uneven batches have the weights of one process."""
        sums = {}
        for name, options in (("plain", {"batch_size": 8}), ("uneven", {"batch_size": 12, "data": data(12)})):
            model = Blocks()
            training(model, **options).train()
            sums[name] = weights_of(model)
        for name, wanted in (("forward_runs_out", "plain"), ("other_weights", "plain"), ("uneven_batches", "uneven")):
            for _, found in self.both(name):
                self.assertAlmostEqual(found, sums[wanted], places=5, msg=name)

    def test_all_fail_where_one_does(self):
        for name, wanted in FAILED.items():
            for rank, text in enumerate(wanted):
                if text is not None:
                    with self.subTest(f"{name}, rank {rank}"):
                        self.assertIn(name, self.said[rank], f"it hangs in it, or before\n{self.errors}")
                        said = self.said[rank][name][0]
                        self.assertIsInstance(said, str)
                        self.assertTrue(said.startswith(text), said)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--rank"]:
        be_a_rank(int(sys.argv[2]), pathlib.Path(sys.argv[3]))
    else:
        torch.set_num_threads(1)
        unittest.main(warnings="ignore")
