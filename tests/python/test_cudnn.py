"""Layers that PyTorch computes with cuDNN, on the stand-in: they train, and allocate what their sizes require.

No kernel runs, so no value is tested; each allocation is PyTorch's own. `allocations` lists the sizes that PyTorch
requests, so an unexpected workspace or reserve shows.
"""

import collections
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest
import warnings

os.environ.setdefault("NEAP_SIM", f"h100-80gb,world=cudnn-{os.getpid()}")
warnings.filterwarnings("ignore")
import torch
from torch import nn
from torch.nn import functional

VERSION = tuple(int(part) for part in torch.__version__.split("+")[0].split(".")[:2])
SCALAR = 4


def rounded(size):
    """PyTorch's allocator hands out multiples of 512 bytes."""
    return -(-size // 512) * 512


def size_of(tensor):
    return tensor.numel() * tensor.element_size()


def allocations(work):
    """The sizes that `work` requests from PyTorch's allocator."""
    torch.cuda.memory._record_memory_history()
    try:
        work()
        trace = torch.cuda.memory._snapshot()["device_traces"][torch.cuda.current_device()]
    finally:
        torch.cuda.memory._record_memory_history(enabled=None)
    return [event["size"] for event in trace if event["action"] == "alloc"]


def counted(*sizes):
    return collections.Counter(sizes)


def workspace(*operands):
    """The memory that cuDNN usually takes for a convolution of planes on an H100's tensor cores: copies in the other
    layout."""
    return sum(operands) + 512


def run(code, **environment):
    """The output of a program of its own."""
    environment = {**os.environ, **environment}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
    return done.returncode, done.stdout + done.stderr


class Convolutions(unittest.TestCase):
    def train(self, layer, *shape, dtype=torch.float32, layout=torch.contiguous_format):
        """A pass forward and backward. Only the gradients are left of it."""
        layer = layer.to("cuda", dtype).to(memory_format=layout)
        x = torch.zeros(*shape, device="cuda", dtype=dtype).to(memory_format=layout).requires_grad_()
        before = torch.cuda.memory_allocated()
        y = layer(x)
        self.assertEqual(torch.cuda.memory_allocated() - before, rounded(size_of(y)))
        y.sum().backward()
        del y
        gradients = sum(rounded(size_of(tensor)) for tensor in [x, *layer.parameters()])
        self.assertEqual(torch.cuda.memory_allocated() - before, gradients)
        self.assertEqual(x.grad.shape, x.shape)

    def test_dimensions_and_types(self):
        kinds = [(nn.Conv1d, nn.ConvTranspose1d, (32,)), (nn.Conv2d, nn.ConvTranspose2d, (16, 16)),
                 (nn.Conv3d, nn.ConvTranspose3d, (8, 8, 8))]
        for dtype in torch.float32, torch.float16, torch.bfloat16, torch.float64:
            for plain, transposed, size in kinds:
                with self.subTest(dtype=dtype, dimensions=len(size)):
                    self.train(plain(8, 16, 3, padding=1), 4, 8, *size, dtype=dtype)
                    self.train(transposed(8, 16, 3, stride=2, output_padding=1), 4, 8, *size, dtype=dtype)

    def test_groups_and_dilation(self):
        for options in {"groups": 4}, {"groups": 8}, {"dilation": 2, "stride": 2}, {"padding": 2, "bias": False}:
            with self.subTest(**options):
                self.train(nn.Conv2d(8, 16, 3, **options), 4, 8, 17, 19)

    def test_channels_last(self):
        self.train(nn.Conv2d(8, 16, 3), 4, 8, 16, 16, dtype=torch.float16, layout=torch.channels_last)
        self.train(nn.Conv3d(8, 16, 3), 4, 8, 8, 8, 8, dtype=torch.float16, layout=torch.channels_last_3d)

    def test_settings_change_no_size(self):
        for benchmark, deterministic in (True, False), (False, True), (True, True):
            with self.subTest(benchmark=benchmark, deterministic=deterministic):
                with torch.backends.cudnn.flags(True, benchmark, deterministic=deterministic):
                    self.train(nn.Conv2d(8, 16, 3), 4, 8, 18, 18)
                    self.train(nn.ConvTranspose2d(8, 16, 3), 4, 8, 18, 18, dtype=torch.float16)

    def test_every_allocation_is_a_tensor(self):
        layer = nn.Conv2d(8, 16, 3, padding=1).cuda()
        x = torch.zeros(4, 8, 32, 32, device="cuda", requires_grad=True)
        y = 4 * 16 * 32 * 32 * 4
        dx = size_of(x)
        dw = 16 * 8 * 9 * 4
        db = 16 * 4
        sizes = counted(*allocations(lambda: layer(x).sum().backward()))
        # the loss and its gradient; the gradient of y is made contiguous for each of the two convolutions
        self.assertEqual(sizes, counted(y, SCALAR, SCALAR, dx, y, y, dw, db, *[workspace(dx, dw, y)] * 3))

    def test_channels_last_takes_no_workspace(self):
        layer = nn.Conv2d(8, 16, 3, padding=1).cuda().to(memory_format=torch.channels_last)
        x = torch.zeros(4, 8, 32, 32, device="cuda").to(memory_format=torch.channels_last)
        for benchmark in False, True:
            with torch.backends.cudnn.flags(True, benchmark), torch.no_grad():
                self.assertEqual(allocations(lambda: layer(x)), [4 * 16 * 32 * 32 * 4])

    def test_autocast_copies_in_half(self):
        layer = nn.Conv2d(8, 16, 3, padding=1).cuda()
        x = torch.zeros(4, 8, 32, 32, device="cuda")
        for dtype in torch.float16, torch.bfloat16:
            with torch.autocast("cuda", dtype), torch.no_grad():
                sizes = counted(*allocations(lambda: layer(x)))
            y = 4 * 16 * 32 * 32 * 2
            copies = (size_of(x) // 2, 16 * 8 * 9 * 2, 16 * 2)
            self.assertEqual(sizes, counted(y, *copies, workspace(y, *copies[:2])))

    def test_in_a_graph(self):
        layer = nn.Conv2d(8, 16, 3).cuda()
        x = torch.zeros(4, 8, 16, 16, device="cuda")
        side = torch.cuda.Stream()
        with torch.no_grad(), torch.cuda.stream(side):
            layer(x)  # finds its plan
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.no_grad(), torch.cuda.graph(graph):
            before = torch.cuda.memory_allocated()
            y = layer(x)
            after = torch.cuda.memory_allocated()
        self.assertEqual(after - before, rounded(size_of(y)))
        graph.replay()
        torch.cuda.synchronize()

    def test_a_shape_that_cannot_be_is_pytorchs_error(self):
        with self.assertRaisesRegex(RuntimeError, "[Kk]ernel size"):
            nn.Conv2d(8, 16, 9).cuda()(torch.zeros(1, 8, 4, 4, device="cuda"))

    def test_fused_with_an_activation(self):
        x, w, b = (torch.zeros(*shape, device="cuda") for shape in ((1, 8, 8, 8), (8, 8, 3, 3), (8,)))
        ones = ((1, 1), (1, 1), (1, 1), 1)
        self.assertEqual(torch.cudnn_convolution_relu(x, w, b, *ones).shape, x.shape)
        self.assertEqual(torch.cudnn_convolution_add_relu(x, w, x, 1.0, b, *ones).shape, x.shape)


class Reports(unittest.TestCase):
    """Convolutions that ran out of memory according to public reports: none of them would get "yes". Either the
    memory that PyTorch itself allocates does not fit, or the workspace has no known bound."""

    # Report (owner/name of GitHub, pytorch/pytorch if there is none), its GPU's GiB (or the least that it took, if
    # the report does not say), layer, type, input, and the bytes that could not be allocated if PyTorch requested
    # them itself. The shapes of #166790 and Wan2GP#1577 follow from what they requested.
    CASES = [
        ("#166790", 24, "Conv3d(32, 16, 3, padding=1)", "half", (1, 32, 256, 256, 256), None),
        ("#31500", 16, "ConvTranspose2d(1, 1, 1, 1, bias=False)", "half", (1024, 1, 1024, 1024), None),
        ("#128947", 80, "Conv3d(256, 64, 3)", "float", (1, 256, 5, 1090, 1922), "161.37 GiB"),
        ("#95024", 80, "Conv3d(64, 32, 3, padding=1)", "half", (1, 64, 362, 370, 251), "108.21 GiB"),
        ("#22741", 16, "Conv2d(128, 128, 3, padding=1)", "half", (1, 128, 168, 64), None),
        ("#14614", 20, "Conv2d(128, 64, 7, 1, 3)", "float", (1, 128, 768, 1024), None),
        ("#26950", 10, "Conv2d(128, 128, 7, 1, 3, bias=False)", "float", (32, 128, 1, 128), None),
        ("#123533", 24, "Conv2d(256, 256, 3, 1, 1)", "half", (1, 256, 2048, 4992), None),
        ("#12651", 12, "Conv1d(5, 1, 97825588, stride=10)", "float", (1, 5, 97825588), None),
        ("soumith/cudnn.torch#262", 21, "Conv2d(164, 256, (1, 3))", "float", (1, 164, 17, 201), None),
        ("deepbeepmeep/Wan2GP#1577", 16, "Conv3d(256, 256, 3)", "bfloat16", (1, 256, 19, 258, 258), None),
    ]
    CODE = """
import json, os, sys, torch
from torch import nn
for report, _, layer, kind, shape, _ in json.loads(sys.argv[1]):
    if pid := os.fork():
        os.waitpid(pid, 0)
        continue
    failed = ""
    try:
        dtype = getattr(torch, kind)
        layer = eval("nn." + layer[:-1] + ", device='cuda', dtype=dtype)")
        layer(torch.empty(*shape, device="cuda", dtype=dtype, requires_grad=True)).sum().backward()
    except torch.OutOfMemoryError as error:
        failed = str(error)
    print(json.dumps([report, os.getpid(), torch.cuda.max_memory_allocated(), failed]), flush=True)
    break  # it exits as programs do, and writes what was not modelled
"""

    def test_none_of_them_gets_yes(self):
        with tempfile.TemporaryDirectory() as folder:
            environment = {**os.environ, "NEAP_RUN_DIR": folder, "NEAP_SIM": f"h100-80gb,values=none,world=reports-{os.getpid()}"}
            words = [sys.executable, "-c", self.CODE, json.dumps(self.CASES)]
            done = subprocess.run(words, env=environment, capture_output=True, text=True)
            lines = [json.loads(line) for line in done.stdout.splitlines()]
            self.assertEqual([line[0] for line in lines], [case[0] for case in self.CASES], done.stderr)
            for (report, gib, *_, asked), (_, pid, peak, failed) in zip(self.CASES, lines):
                with self.subTest(report=report):
                    tally = pathlib.Path(folder, f"simulated.{pid}")  # no file: it never called cuDNN
                    unbounded = tally.exists() and f" {2**64 - 1}\n" in tally.read_text(encoding="ascii")
                    if asked and VERSION < (2, 5):  # 2.15 gives cuDNN more than 2^31 elements
                        self.assertIn(f"Tried to allocate {asked}", failed)
                    self.assertTrue(unbounded or failed or peak > gib << 30, (unbounded, peak, failed))


class Values(unittest.TestCase):
    def test_results_read_as_zeros_where_other_values_were(self):
        x = torch.zeros(4, 8, 16, 16, device="cuda")
        w = torch.zeros(8, 8, 3, 3, device="cuda")
        y = torch.full((4, 8, 16, 16), 7.0).cuda()
        self.assertEqual(y.cpu().mean().item(), 7)
        ones = (1, 1), (1, 1), (1, 1)
        torch.ops.aten.cudnn_convolution.out(x, w, *ones, 1, False, False, False, out=y)
        self.assertEqual(y.cpu().abs().sum().item(), 0)


class Normalization(unittest.TestCase):
    def test_training_keeps_mean_and_deviation_of_each_channel(self):
        for dtype in torch.float32, torch.float16, torch.bfloat16:
            for layout in torch.contiguous_format, torch.channels_last:
                if (dtype, layout) == (torch.bfloat16, torch.channels_last):
                    continue  # PyTorch has a kernel of its own
                with self.subTest(dtype=dtype, layout=layout):
                    layer = nn.BatchNorm2d(16).cuda()
                    x = torch.zeros(8, 16, 32, 32, device="cuda", dtype=dtype).to(memory_format=layout)
                    x.requires_grad_()
                    layer(x).sum().backward()
                    y = None

                    def forward():
                        nonlocal y
                        y = layer(x)

                    self.assertEqual(counted(*allocations(forward)), counted(size_of(x), 16 * 4, 16 * 4))
                    before = torch.cuda.memory_allocated()
                    y.sum().backward()
                    self.assertEqual(torch.cuda.memory_allocated(), before - 2 * 512)  # they were freed

    def test_evaluation_keeps_nothing(self):
        for layer, shape in (nn.BatchNorm1d(16), (8, 16, 32)), (nn.BatchNorm3d(16), (2, 16, 4, 8, 8)):
            layer = layer.cuda().eval()
            x = torch.zeros(*shape, device="cuda")
            with torch.no_grad():
                self.assertEqual(allocations(lambda: layer(x)), [size_of(x)])


class Recurrent(unittest.TestCase):
    def sequences(self, packed, batch_first):
        x = torch.zeros(*((3, 9, 12) if batch_first else (9, 3, 12)), device="cuda", requires_grad=True)
        if not packed:
            return x
        return nn.utils.rnn.pack_padded_sequence(x, [9, 4, 2], batch_first=batch_first)

    def test_weights_are_one_buffer_of_exactly_their_size(self):
        kinds = [{"num_layers": 3}, {"num_layers": 2, "bidirectional": True}]
        projected = [{"num_layers": 2, "bidirectional": True, "proj_size": 7}]
        for make in nn.LSTM, nn.GRU, nn.RNN:
            for options in kinds + (projected if make is nn.LSTM else []):
                with self.subTest(make=make.__name__, **options):
                    layer = make(12, 20, **options)
                    elements = sum(weight.numel() for weight in layer.parameters())
                    before = torch.cuda.memory_allocated()
                    layer.cuda()
                    self.assertEqual(torch.cuda.memory_allocated() - before, rounded(4 * elements))
                    addresses = {weight.untyped_storage().data_ptr() for weight in layer.parameters()}
                    self.assertEqual(len(addresses), 1)

    def test_every_kind_trains(self):
        kinds = [{}, {"num_layers": 3}, {"num_layers": 2, "bidirectional": True}, {"num_layers": 2, "dropout": 0.25},
                 {"bias": False}, {"batch_first": True}]
        for make in nn.LSTM, nn.GRU, nn.RNN:
            for options in kinds + [{"nonlinearity": "relu"} if make is nn.RNN else {}]:
                for packed in False, True:
                    with self.subTest(make=make.__name__, packed=packed, **options):
                        layer = make(12, 20, **options).cuda()
                        output, _ = layer(self.sequences(packed, options.get("batch_first", False)))
                        (output.data if packed else output).sum().backward()
                        self.assertTrue(all(weight.grad is not None for weight in layer.parameters()))

    def test_half_and_autocast(self):
        for make in nn.LSTM, nn.GRU, nn.RNN:
            for dtype in torch.float16, torch.bfloat16:
                x = torch.zeros(9, 3, 12, device="cuda", dtype=dtype)
                make(12, 20, num_layers=2).to("cuda", dtype)(x)[0].sum().backward()
            with torch.autocast("cuda"):
                make(12, 20, num_layers=2).cuda()(self.sequences(False, False))[0].float().sum().backward()

    def test_training_reserves_what_backward_needs(self):
        steps = 9
        batch = 3
        hidden = 20
        layers = 2
        state = layers * batch * hidden * 4
        output = steps * batch * hidden * 4
        for make, values, states in (nn.LSTM, 5, 2), (nn.GRU, 6, 1):
            layer = make(12, hidden, num_layers=layers).cuda()
            x = self.sequences(False, False)
            reserve = steps * batch * hidden * (values * layers + layers - 1) * 4
            sizes = counted(*allocations(lambda: layer(x)))
            # the first states and the last ones
            self.assertEqual(sizes, counted(output, reserve, *[state] * 2 * states))
            layer.eval()
            with torch.no_grad():
                self.assertEqual(counted(*allocations(lambda: layer(x))), counted(output, *[state] * 2 * states))

    def test_dropout_has_a_generator_for_each_thread_of_the_device(self):
        device = torch.cuda.get_device_properties(0)
        states = device.multi_processor_count * device.max_threads_per_multi_processor * 24
        code = ("import torch\n"
                "before = torch.cuda.memory_allocated()\n"
                "device = torch.device('cuda')\n"
                "state = torch._cudnn_init_dropout_state(0.5, True, 7, dtype=torch.uint8, device=device)\n"
                "print('bytes', state.numel())\n")
        self.assertEqual(run(code), (0, f"bytes {states}\n"))


class Attention(unittest.TestCase):
    CODE = ("import torch\n"
            "q = torch.zeros(2, 8, 256, 64, device='cuda', dtype=torch.bfloat16, requires_grad=True)\n"
            "print(torch.nn.functional.scaled_dot_product_attention(q, q, q).grad_fn.name())\n")

    def chosen(self, device):
        code, text = run(self.CODE, NEAP_SIM=f"{device},world=cudnn-{os.getpid()}-{device}")
        self.assertEqual(code, 0, text)
        return text.split()[-1]

    def test_pytorch_chooses_by_the_device(self):
        """It prefers cuDNN's on 9.0 and 10.0 with cuDNN above 9.15, flash elsewhere. It does not ask what is
        supported."""
        newer = "Cudnn" if VERSION >= (2, 10) else "Flash"
        self.assertEqual(self.chosen("h100-80gb"), f"ScaledDotProduct{newer}AttentionBackward0")
        self.assertEqual(self.chosen("a100-80gb"), "ScaledDotProductFlashAttentionBackward0")

    def test_every_kind_trains(self):
        for dtype in torch.float32, torch.float16, torch.bfloat16:
            for options in {}, {"is_causal": True}, {"dropout_p": 0.125}, {"attn_mask": True}:
                with self.subTest(dtype=dtype, **options):
                    q, k, v = torch.zeros(3, 2, 4, 64, 32, device="cuda", dtype=dtype).unbind()
                    for tensor in q, k, v:
                        tensor.requires_grad_()
                    if "attn_mask" in options:
                        options = {"attn_mask": torch.zeros(64, 64, device="cuda", dtype=dtype)}
                    functional.scaled_dot_product_attention(q, k, v, **options).sum().backward()
                    self.assertEqual(q.grad.shape, q.shape)

    @unittest.skipIf(VERSION < (2, 10), "this PyTorch does not prefer cuDNN's attention")
    def test_backward_accumulates_the_querys_gradient_in_float(self):
        q, k, v = torch.zeros(3, 2, 8, 256, 64, device="cuda", dtype=torch.bfloat16).unbind()
        for tensor in q, k, v:
            tensor.requires_grad_()
        y = functional.scaled_dot_product_attention(q, k, v)
        gradient = torch.zeros_like(y)
        accumulator = q.numel() * 4
        sums = 2 * 8 * 256 * 4
        self.assertEqual(counted(*allocations(lambda: y.backward(gradient))),
                         counted(accumulator + sums, *[size_of(q)] * 3))


class Others(unittest.TestCase):
    def test_ctc_with_labels_on_the_host(self):
        steps = 50
        batch = 4
        letters = 20
        longest = 10
        x = torch.zeros(steps, batch, letters, device="cuda", requires_grad=True)
        labels = torch.ones(batch * longest, dtype=torch.int32)

        def forward():
            return torch._cudnn_ctc_loss(x, labels, (steps,) * batch, (longest,) * batch, 0, False, False)

        lattice = steps * batch * (2 * longest + 1) * 4
        self.assertEqual(counted(*allocations(forward)), counted(lattice, batch * 4, size_of(x)))
        loss = functional.ctc_loss(x.log_softmax(2), labels, (steps,) * batch, (longest,) * batch)
        loss.backward()
        self.assertEqual(x.grad.shape, x.shape)

    def test_spatial_transformer(self):
        theta = torch.zeros(2, 2, 3, device="cuda", requires_grad=True)
        x = torch.zeros(2, 3, 8, 8, device="cuda", requires_grad=True)
        grid = functional.affine_grid(theta, (2, 3, 8, 8), align_corners=True)
        functional.grid_sample(x, grid, align_corners=True).sum().backward()
        self.assertEqual((theta.grad.shape, x.grad.shape), (theta.shape, x.shape))

    def test_version_is_what_is_asked_for(self):
        """PyTorch refuses a cuDNN older than the one it was compiled for."""
        code = "import torch; print(torch.backends.cudnn.version())"
        self.assertEqual(run(code, NEAP_CUDNN_VERSION="9.30.1"), (0, "93001\n"))
        self.assertEqual(run(code, NEAP_CUDNN_VERSION=""), (0, "92600\n"))
        status, text = run(code, NEAP_CUDNN_VERSION="9.0.0")
        self.assertNotEqual(status, 0)
        self.assertIn("found runtime version (9, 0, 0)", text)


class Block(nn.Module):
    def __init__(self, inputs, outputs, stride=1):
        super().__init__()
        self.long = nn.Sequential(
            nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU(),
            nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False), nn.BatchNorm2d(outputs))
        self.short = nn.Identity() if inputs == outputs and stride == 1 else nn.Sequential(
            nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x):
        return functional.relu(self.long(x) + self.short(x))


class Networks(unittest.TestCase):
    def resnet(self):
        return nn.Sequential(
            nn.Conv2d(3, 16, 7, 2, 3, bias=False), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(3, 2, 1),
            Block(16, 16), Block(16, 32, 2), Block(32, 64, 2), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10))

    def test_training_a_residual_network_is_the_same_in_each_step(self):
        for layout in torch.contiguous_format, torch.channels_last:
            for half in False, True:
                with self.subTest(layout=layout, half=half), torch.backends.cudnn.flags(True, half):
                    self.train(self.resnet().cuda().to(memory_format=layout), layout, half)

    def train(self, model, layout, half):
        optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
        seen = []
        for _ in range(4):
            torch.cuda.reset_peak_memory_stats()
            x = torch.zeros(8, 3, 64, 64, device="cuda").to(memory_format=layout)
            with torch.autocast("cuda", torch.bfloat16, enabled=half):
                loss = functional.cross_entropy(model(x), torch.zeros(8, device="cuda", dtype=torch.int64))
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            del x, loss
            seen.append((torch.cuda.memory_allocated(), torch.cuda.max_memory_allocated()))
        self.assertEqual(len(set(seen[1:])), 1)
        parameters = sum(rounded(size_of(weight)) for weight in model.parameters())
        self.assertGreater(seen[-1][1] - seen[-1][0], 2 * parameters)


if __name__ == "__main__":
    unittest.main(warnings="ignore")
