"""PyTorch's real CUDA allocator on neap's libcudart: what memory holds, what is counted, streams, graphs, errors.

No kernel runs. Data that was copied to the device comes back; everything else reads as zeros, every time.
"""

import gc
import importlib.util
import os
import subprocess
import sys
import tempfile
import unittest
import warnings

os.environ.setdefault("NEAP_SIM", f"mem=2GiB,gpus=2,context=64MiB,reserved=16MiB,values=none,world=runtime-{os.getpid()}")
warnings.filterwarnings("ignore")
import torch
from forked import Forks

MIB = 2**20
FORKS = Forks()


def program(code, **environment):
    """The output of a program of its own."""
    done = FORKS.run(code, **environment)
    assert done.returncode == 0, done
    return done.stdout.strip()


def interpreter(code, **environment):
    """The same for variables that PyTorch reads when it is imported."""
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", code], env={**os.environ, **environment}, text=True, stdout=subprocess.PIPE, timeout=300)
    assert done.returncode == 0, done
    return done.stdout.strip()


class Fresh(unittest.TestCase):
    def setUp(self):
        gc.collect()
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()


class Architectures(unittest.TestCase):
    def test_a_sort_runs_on_devices_that_pytorch_has_no_image_of_their_own_for(self):
        code = "import torch; print(torch.zeros(100, 100, device='cuda').flatten().sort()[0].numel())"
        for profile in ("l4-24gb", "rtx3090-24gb"):
            simulated = {"NEAP_SIM": f"{profile},backing=none,world=runtime-{profile}-{os.getpid()}"}
            self.assertEqual(program(code, **simulated), "10000", profile)


class Contents(Fresh):
    def test_what_was_sent_comes_back(self):
        sent = torch.arange(100_000, dtype=torch.float32)
        there = sent.cuda()
        self.assertTrue(torch.equal(there.cpu(), sent))
        self.assertTrue(torch.equal(there.clone().cpu(), sent))
        self.assertTrue(torch.equal(there[1000:2000].cpu(), sent[1000:2000]))
        self.assertTrue(torch.equal(there.to("cuda:1").cpu(), sent))
        self.assertEqual(there[7].item(), 7)

    def test_pinned_memory(self):
        sent = torch.arange(1000).pin_memory()
        self.assertTrue(sent.is_pinned())
        there = sent.to("cuda", non_blocking=True)
        back = torch.empty(1000, dtype=torch.long).pin_memory()
        back.copy_(there, non_blocking=True)
        torch.cuda.synchronize()
        self.assertTrue(torch.equal(back, sent))

    def test_what_was_never_computed_is_zero_every_time(self):
        for _ in range(3):
            self.assertEqual(torch.randn(5000, device="cuda").abs().sum().item(), 0)
            # The program writes NaN to this block and frees it; the next tensor gets the block.
            address = torch.full((5000,), float("nan")).cuda().data_ptr()
            again = torch.empty(5000, device="cuda")
            self.assertEqual(again.data_ptr(), address)
            self.assertFalse(again.cpu().isnan().any().item())

    def test_a_kernel_changes_nothing(self):
        there = torch.arange(1, 100, dtype=torch.float32).cuda()
        there.add_(1)
        self.assertEqual(there[0].item(), 1)

    def test_a_device_without_backing_costs_no_host_memory(self):
        printed = program(
            "import torch\n"
            "x = torch.empty(60 << 30, dtype=torch.uint8, device='cuda'); x.zero_(); y = x.clone()\n"
            "z = torch.full((1 << 20,), 7.0).cuda(); flag = torch.tensor([5]).cuda()\n"
            "print(flag.item(), y[:100].cpu().sum().item(), z[3].item(), torch.cuda.memory_allocated() >> 30)\n",
            NEAP_SIM=f"h200-141gb,backing=none,world=runtime-none-{os.getpid()}",
        )
        self.assertEqual(printed, "5 0 0.0 120")

    def test_processes_share_a_tensor(self):
        """By torch.multiprocessing: each reads what the other stored. With expandable segments, if this PyTorch
        shares them."""
        settings = [""]
        if torch.__version__ >= (2, 10):
            settings.append("expandable_segments:True")
        for setting in settings:
            with self.subTest(setting=setting), tempfile.TemporaryDirectory() as folder:
                script = os.path.join(folder, "share.py")
                with open(script, "w") as file:
                    file.write(SHARING)
                environment = {**os.environ, "PYTORCH_CUDA_ALLOC_CONF": setting, "NEAP_SIM": f"mem=2GiB,world=runtime-share-{os.getpid()}"}
                done = subprocess.run([sys.executable, "-W", "ignore", script], env=environment, text=True, stdout=subprocess.PIPE, timeout=300)
                self.assertEqual((done.returncode, done.stdout), (0, "[1.0, 2.0, 3.0] 6000000.0\n[90.0, 91.0, 3.0]\n"))


SHARING = """
import torch, torch.multiprocessing as mp

def work(tensors, answers):
    shared = tensors.get()
    answers.put(f"{shared[:3].tolist()} {shared[-1].item()}")
    shared[:2].copy_(torch.tensor([90.0, 91.0]))
    torch.cuda.synchronize()
    answers.put("stored")
    tensors.get()

if __name__ == "__main__":
    context = mp.get_context("spawn")
    tensors, answers = context.Queue(), context.Queue()
    process = context.Process(target=work, args=(tensors, answers))
    process.start()
    mine = torch.arange(1, 6_000_001, dtype=torch.float32).cuda()
    tensors.put(mine)
    print(answers.get())
    answers.get()
    print(mine[:3].tolist())
    tensors.put(None)
    process.join()
    raise SystemExit(process.exitcode)
"""


class Counted(Fresh):
    def test_a_step_allocates_what_its_sizes_say(self):
        model = torch.nn.Linear(1024, 512, bias=False).cuda()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        before = torch.cuda.memory_allocated()
        self.assertEqual(before, 1024 * 512 * 4)
        model(torch.zeros(64, 1024, device="cuda")).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        # Weights and momentum stay. So do cuBLAS's workspaces of 32 MiB (compute capability 9.0), one for each
        # thread, in the releases that keep them.
        self.assertIn(torch.cuda.memory_allocated() - 2 * before, (0, 32 * MIB, 64 * MIB))

    def test_the_device_knows_what_pytorch_reserves(self):
        torch.zeros(1, device="cuda")
        torch.cuda.empty_cache()
        free, total = torch.cuda.mem_get_info()
        block = torch.empty(100 * MIB, dtype=torch.uint8, device="cuda")
        self.assertEqual(free - torch.cuda.mem_get_info()[0], 100 * MIB)
        del block
        self.assertEqual(free - torch.cuda.mem_get_info()[0], 100 * MIB)  # cached
        torch.cuda.empty_cache()
        self.assertEqual(torch.cuda.mem_get_info(), (free, total))

    def test_expandable_segments(self):
        printed = program(
            "import torch\n"
            "a = torch.empty(30 << 20, dtype=torch.uint8, device='cuda'); b = torch.empty(30 << 20, dtype=torch.uint8, device='cuda')\n"
            "del a; torch.cuda.empty_cache()\n"
            "print(torch.cuda.memory_reserved() >> 20, any(s['is_expandable'] for s in torch.cuda.memory_snapshot()))\n",
            PYTORCH_CUDA_ALLOC_CONF="expandable_segments:True", PYTORCH_ALLOC_CONF="expandable_segments:True",
        )
        self.assertEqual(printed, "40 True")  # pages of 20 MiB; the first page of a is given back

    def test_out_of_memory_is_pytorchs_own(self):
        with self.assertRaises(torch.cuda.OutOfMemoryError) as caught:
            torch.empty(3 << 30, dtype=torch.uint8, device="cuda")
        self.assertIn("Tried to allocate 3.00 GiB. GPU 0 has a total capacity of 1.98 GiB", str(caught.exception))
        self.assertEqual(torch.cuda.memory_stats()["num_ooms"], 1)
        torch.zeros(1, device="cuda").item()  # and the process continues


class Settings(unittest.TestCase):
    def test_which_variable_pytorch_reads(self):
        """PYTORCH_CUDA_ALLOC_CONF, even if it is empty; without it, in newer releases, PYTORCH_ALLOC_CONF. neap takes
        the same variable."""
        code = (
            "import torch; torch.empty(1, device='cuda')\n"
            "from neap import _advice\n"
            "real = torch.cuda.memory._snapshot()['allocator_settings']['expandable_segments']\n"
            "print(real, _advice.grows(torch))\n"
        )
        grow = "expandable_segments:True"
        stay = "expandable_segments:False"
        newer = torch.__version__ >= (2, 9)
        for cuda, either, grows in ((None, None, False), (grow, None, True), (None, grow, newer), (stay, grow, False), (grow, stay, True), ("", grow, False)):
            names = {"PYTORCH_CUDA_ALLOC_CONF": cuda, "PYTORCH_ALLOC_CONF": either}
            with self.subTest(**names):
                kept = {name: os.environ.pop(name) for name in names if name in os.environ}
                try:
                    printed = program(code, **{name: value for name, value in names.items() if value is not None})
                finally:
                    os.environ.update(kept)
                self.assertEqual(printed, f"{grows} {grows}")

    def test_enabled_settings_reach_pytorch(self):
        """`neap enable` merges the settings of both variables, so that PyTorch has the user's settings and its
        own."""
        code = (
            "import os, neap; neap.enable_memory_efficient_settings()\n"
            "import torch; torch.empty(1, device='cuda')\n"
            "settings = torch.cuda.memory._snapshot()['allocator_settings']\n"
            "print(settings['expandable_segments'], settings['garbage_collection_threshold'])\n"
        )
        for name in ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"):
            with self.subTest(name=name):
                self.assertEqual(interpreter(code, **{name: "garbage_collection_threshold:0.5"}), "True 0.5")


class Order(Fresh):
    def test_a_block_that_another_stream_uses_is_not_reused_before(self):
        printed = program(
            "import torch\n"
            "side = torch.cuda.Stream(); a = torch.empty(4 << 20, dtype=torch.uint8, device='cuda'); at = a.data_ptr()\n"
            "with torch.cuda.stream(side):\n"
            "    for _ in range(1000): a.add_(1)\n"
            "a.record_stream(side); del a\n"
            "b = torch.empty(4 << 20, dtype=torch.uint8, device='cuda')\n"
            "side.synchronize(); del b\n"
            "c = torch.empty(4 << 20, dtype=torch.uint8, device='cuda'); d = torch.empty(4 << 20, dtype=torch.uint8, device='cuda')\n"
            "print(at in (c.data_ptr(), d.data_ptr()))\n",
            NEAP_SIM_KERNEL="1ms",
        )
        self.assertEqual(printed, "True")

    def test_events(self):
        first = torch.cuda.Event(enable_timing=True)
        last = torch.cuda.Event(enable_timing=True)
        first.record()
        torch.ones(10, device="cuda").add_(1)
        last.record()
        last.synchronize()
        self.assertTrue(last.query())
        self.assertGreaterEqual(first.elapsed_time(last), 0)

    def test_a_graph_keeps_its_pool(self):
        static = torch.zeros(1 << 20, device="cuda")
        graph = torch.cuda.CUDAGraph()
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            (static * 2).sum()
        torch.cuda.current_stream().wait_stream(side)
        with torch.cuda.graph(graph):
            result = static * 2
        graph.replay()
        torch.cuda.synchronize()
        self.assertEqual(result.shape, static.shape)
        pools = {tuple(segment["segment_pool_id"]) for segment in torch.cuda.memory_snapshot()}
        self.assertGreater(len(pools), 1)
        del result, graph

    def test_a_graph_cannot_have_memory_of_a_pool(self):
        """backend:cudaMallocAsync works; with graphs it is refused with a message."""
        code = (
            "import torch\n"
            "x = torch.arange(1000).cuda(); y = x.clone(); print(y[7].item(), torch.cuda.memory_allocated() >= 16000)\n"
            "try:\n"
            "    with torch.cuda.graph(torch.cuda.CUDAGraph()): torch.empty(1000, device='cuda')\n"
            "except RuntimeError as error: print('no memory nodes' in str(error))\n"
        )
        self.assertEqual(interpreter(code, PYTORCH_CUDA_ALLOC_CONF="backend:cudaMallocAsync"), "7 True\nTrue")

    def test_a_synchronisation_spoils_a_capture(self):
        printed = program(
            "import torch\n"
            "try:\n"
            "    with torch.cuda.graph(torch.cuda.CUDAGraph()):\n"
            "        torch.zeros(1, device='cuda'); torch.cuda.synchronize()\n"
            "except RuntimeError as error: print('captur' in str(error))\n"
        )
        self.assertEqual(printed, "True")


class Processes(Fresh):
    @unittest.skipUnless(importlib.util.find_spec("triton"), "Triton is not installed (1 GB): torch.compile needs it")
    def test_compiled_functions_allocate(self):
        compiled = torch.compile(torch.nn.Sequential(torch.nn.Linear(256, 256), torch.nn.GELU(), torch.nn.Linear(256, 256)).cuda())
        x = torch.randn(64, 256, device="cuda")
        compiled(x).sum().backward()
        before = torch.cuda.memory_allocated()
        kept = compiled(x)
        self.assertEqual(torch.cuda.memory_allocated() - before, 3 * 64 * 256 * 4)  # the result, and two kept for the backward
        del kept
        self.assertEqual(torch.cuda.memory_allocated(), before)

    def test_what_is_compiled_stays_apart_from_a_real_gpus(self):
        print_it = "import os, torch; print(os.environ['TORCHINDUCTOR_CACHE_DIR'], os.environ['TRITON_LIBCUDA_PATH'])"
        cache, driver = interpreter(print_it).split()
        self.assertIn("simulated", cache)
        self.assertTrue(os.path.exists(os.path.join(driver, "libcuda.so.1")))

    def test_a_forked_child_is_told_as_on_a_gpu(self):
        torch.zeros(1, device="cuda")
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                torch.zeros(1, device="cuda")
                os.write(writing, b"no error")
            except RuntimeError as error:
                os.write(writing, str(error).encode()[:200])
            os._exit(0)
        os.waitpid(child, 0)
        self.assertIn(b"Cannot re-initialize CUDA in forked subprocess", os.read(reading, 400))

    def test_no_library_of_nvidias_is_mapped(self):
        torch.zeros(8, 8, device="cuda") @ torch.zeros(8, 8, device="cuda")
        with open("/proc/self/maps", encoding="utf-8") as maps:
            mapped = {line.split(None, 5)[5].strip() for line in maps if "libcudart" in line or "libcublas.so" in line}
        self.assertTrue(mapped)
        for path in mapped:
            self.assertTrue(path.startswith(os.path.realpath(os.environ["NEAP_SIM_RUNTIME"])), path)


if __name__ == "__main__":
    unittest.main()
