"""Values of kernels that PyTorch launches outside of its operations (values=full): TorchScript's kernels are
computed, the program's own are unknown and named. And operations whose results have a size that depends on values,
and values that a GPU refuses."""

import _thread
import ctypes
import os
import queue
import struct
import unittest
import warnings

os.environ["NEAP_SIM"] = f"h100-80gb,values=full,world=kernels-{os.getpid()}"
warnings.simplefilter("ignore")

import torch
from neap import _values, _values_triton


def mixed(x, y):
    return (x * 2 + y).relu() * torch.tanh(y)


class Dim3(ctypes.Structure):
    _fields_ = (("x", ctypes.c_uint), ("y", ctypes.c_uint), ("z", ctypes.c_uint))


class Extension:
    """Registers and launches a kernel as code from nvcc does, at an address in a library outside PyTorch."""

    def __init__(self, function, symbol):
        with open("/proc/self/maps", encoding="utf-8") as file:
            self.runtime = ctypes.CDLL(next(line.split()[-1] for line in file if "libcudart" in line))
        self.stub = ctypes.cast(getattr(ctypes.CDLL("libm.so.6"), function), ctypes.c_void_p)
        self.name = ctypes.create_string_buffer(symbol)
        register = self.runtime.__getattr__("__cudaRegisterFatBinary")
        register.restype = ctypes.c_void_p
        enter = self.runtime.__getattr__("__cudaRegisterFunction")
        enter(ctypes.c_void_p(register(self.stub)), self.stub, self.name, self.name, -1, None, None, None, None, None)

    def launch(self, *tensors):
        words = [ctypes.c_uint64(one.data_ptr()) for one in tensors]
        arguments = (ctypes.c_void_p * (len(words) + 1))(*[ctypes.addressof(one) for one in words], None)
        call = self.runtime.cudaLaunchKernel
        call.argtypes = [ctypes.c_void_p, Dim3, Dim3, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p]
        assert call(self.stub, Dim3(1, 1, 1), Dim3(32, 1, 1), arguments, 0, None) == 0


def ptx(name, count):
    parameters = ", ".join(f".param .u64 p{i}" for i in range(count)).encode()
    return b".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry " + name + b"(" + parameters + b") { ret; }"


def cubin(name, count):
    """A kernel without code. Like ptxas's output it has a row for each parameter, among rows of other kinds."""
    row = struct.pack("<BBHIHHI", 4, 0x17, 12, 0, 0, 0, 0)
    info = struct.pack("<BBH", 3, 0x50, 0x17) + struct.pack("<BBHI", 4, 0x37, 4, 129) + row * count
    names = b"\0" + name + b"\0.nv.info." + name + b"\0"
    symbols = bytes(24) + struct.pack("<IBBHQQ", 1, 0x12, 0, 4, 0, 256)
    places = [64, 64 + len(names), 64 + len(names) + len(symbols)]
    sections = bytes(64)
    for kind, link, at, content in zip((3, 2, 0x70000000), (0, 1, 2), places, (names, symbols, info)):
        title = len(name) + 2 if content is info else 0
        sections += struct.pack("<IIQQQQIIQQ", title, kind, 0, 0, at, len(content), link, 0, 1, 0)
    start = places[2] + len(info)
    head = b"\x7fELF\x02\x01\x01" + bytes(9) + struct.pack("<HHIQQQIHHHHHH", 2, 190, 1, 0, 0, start, 0, 64, 0, 0, 64, 4, 1)
    return head + names + symbols + info + sections


class Loaded:
    """A kernel of a module that the program loads through the driver's API."""

    def __init__(self, name, image):
        torch.zeros(1, device="cuda")  # there is a context
        self.driver = ctypes.CDLL("libcuda.so.1")
        module = ctypes.c_void_p()
        self.function = ctypes.c_void_p()
        assert self.driver.cuModuleLoadData(ctypes.byref(module), image) == 0
        assert self.driver.cuModuleGetFunction(ctypes.byref(self.function), module, name) == 0

    def _launch(self, arguments, extra):
        stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
        assert self.driver.cuLaunchKernel(self.function, 1, 1, 1, 32, 1, 1, 0, stream, arguments, extra) == 0

    def launch(self, *arguments):
        words = [ctypes.c_uint64(one if isinstance(one, int) else one.data_ptr()) for one in arguments]
        self._launch((ctypes.c_void_p * len(words))(*[ctypes.addressof(one) for one in words]), None)

    def launch_packed(self, *tensors):
        words = (ctypes.c_uint64 * len(tensors))(*[one.data_ptr() for one in tensors])
        size = ctypes.c_size_t(ctypes.sizeof(words))
        extra = (ctypes.c_void_p * 5)(1, ctypes.addressof(words), 2, ctypes.addressof(size), 0)
        self._launch(None, extra)


class TestKernels(unittest.TestCase):
    def test_what_torchscript_compiles(self):
        """From the third call on; again for another size; in a forked task; and in a graph."""
        script = torch.jit.script(mixed)

        def apart(x: torch.Tensor, y: torch.Tensor):
            return torch.jit.wait(torch.jit.fork(script, x, y))

        forked = torch.jit.script(apart)
        for function, sizes in ((script, (8, 8, 8, 8, 5, 6)), (forked, (8, 8, 8))):
            for size in sizes:
                x = torch.randn(size)
                y = torch.randn(size)
                torch.testing.assert_close(function(x.cuda(), y.cuda()).cpu(), mixed(x, y))
        x, y = torch.randn(2, 8).cuda()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            found = script(x, y)
        for _ in range(2):
            x.copy_(torch.randn(8))
            graph.replay()
            torch.testing.assert_close(found, mixed(x, y))

    def test_gradients_through_torchscript(self):
        for device in ("cpu", "cuda"):
            script = torch.jit.script(mixed)
            for _ in range(4):
                x = torch.linspace(-1, 1, 8, device=device, requires_grad=True)
                script(x, x.exp()).sum().backward()
            if device == "cpu":
                expected = x.grad
        torch.testing.assert_close(x.grad.cpu(), expected)

    def test_what_a_kernel_in_triton_writes_is_unknown(self):
        try:
            import triton
            import triton.language as tl
        except ImportError:
            self.skipTest("no Triton")

        def added(x, places, sums, total, count, SIZE: tl.constexpr):
            at = tl.program_id(0) * SIZE + tl.arange(0, SIZE)
            found = tl.zeros((SIZE,), tl.float32)
            for _ in range(count):
                found += tl.load(x + at)
            to = tl.load(places + at)
            tl.store(sums + to, found)
            tl.atomic_add(total, tl.sum(found, 0))

        added.__globals__["tl"] = tl
        x = torch.rand(32, device="cuda")
        total = torch.full((1,), 3.0, device="cuda")
        places = torch.arange(32, device="cuda")
        sums = torch.empty(32, device="cuda")
        triton.jit(added)[(1,)](x, places, sums, total, 2, SIZE=32)
        self.assertEqual([_values.known(one) for one in (x, places, sums, total)], [True, True, False, False])
        self.assertGreater(sums.min().item(), 0)
        self.assertEqual(total.item(), 3)
        self.assertFalse(_values.known(sums * 2))
        self.assertIn(("added", "a kernel in Triton"), _values.unknown())

    def test_an_operation_that_pytorch_has_in_triton(self):
        """Since 2.12 PyTorch computes some products of matrices by Triton: values of its operations are known."""
        kernels = set(_values_triton.failed)
        x = torch.randn(8, 64, 1)
        y = torch.randn(8, 1, 32)
        product = torch.bmm(x.cuda(), y.cuda())
        self.assertTrue(torch.equal(product.cpu(), torch.bmm(x, y)))
        self.assertTrue(_values.known(product))
        self.assertEqual(set(_values_triton.failed), kernels)

    def test_a_text_of_triton_that_is_not_clear(self):
        head = "tt.func public @f(%a: !tt.ptr<f32>, %b: !tt.ptr<f32>) {\n"
        self.assertEqual(_values_triton._uses(head + "tt.store %b, %c : f32", 2), (set(), {1}))
        self.assertEqual(_values_triton._uses(head + "tt.store %c, %d : f32", 2), (set(), {0, 1}))
        self.assertEqual(_values_triton._uses(head + "tt.call @g(%a)", 2), ({0, 1}, {0, 1}))
        self.assertEqual(_values_triton._uses(head + "tt.store %b, %c : f32", 3)[1], {0, 1, 2})

    def test_what_an_extension_launches_is_unknown(self):
        named = Extension("cos", b"_ZN3ops5scaleEPKfPfS2_")
        unnamed = Extension("sin", b"scale_c")
        x = torch.ones(2000, device="cuda")
        into = torch.zeros(2000, device="cuda")
        place = torch.ones(2000, device="cuda")
        named.launch(x, into[7:], place)
        self.assertEqual([_values.known(one) for one in (x, into, place)], [True, False, False])
        self.assertGreater(into.min().item(), 0)  # not zeros, which the kernel would have overwritten
        self.assertEqual(place.min().item(), 1)
        unnamed.launch(x)
        self.assertFalse(_values.known(x))
        names = [name for name, why in _values.unknown() if why == "a kernel of an extension"]
        self.assertLessEqual({"ops::scale", "scale_c"}, set(names))
        into.fill_(2)
        self.assertTrue(_values.known(into))

    def test_what_the_driver_launches_is_unknown(self):
        """An argument that is not a pointer parameter in the kernel's PTX is not looked at."""
        x, into, packed, other = (torch.zeros(2000, device="cuda") for _ in range(4))
        kernel = Loaded(b"doubled", ptx(b"doubled", 2))
        kernel.launch(into, x, other)
        self.assertEqual([_values.known(one) for one in (x, into, packed, other)], [False, False, True, True])
        self.assertGreater(into.min().item(), 0)
        kernel.launch_packed(packed, other)
        self.assertEqual([_values.known(one) for one in (packed, other)], [False, False])
        self.assertIn(("doubled", "a kernel that the program loaded"), _values.unknown())

    def test_what_the_driver_launches_from_a_cubin_is_unknown(self):
        """As numba does: each of the arrays in its name is six parameters; or the image does not say how many there
        are."""
        name = b"_Z3add5ArrayIfES0_"
        for count in (12, 0):
            x, into, other = (torch.zeros(2000, device="cuda") for _ in range(3))
            Loaded(name, cubin(name, count)).launch(0, 0, 2000, 4, x, 2000, 0, 0, 2000, 4, into, 2000, *[other] * (count == 12))
            self.assertEqual([_values.known(one) for one in (x, into, other)], [False, False, True])

    def test_what_the_driver_launches_into_its_own_memory_is_unknown(self):
        kernel = Loaded(b"doubled", ptx(b"doubled", 1))
        address = ctypes.c_uint64()
        self.assertEqual(kernel.driver.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(8000)), 0)
        array = type(
            "Array", (), {"__cuda_array_interface__": {"shape": (2000,), "typestr": "<f4", "data": (address.value, False), "version": 2}}
        )
        into = torch.as_tensor(array(), device="cuda")
        x = torch.zeros(2000, device="cuda")
        self.assertTrue(_values.known(into))
        kernel.launch(address.value + 4000)
        self.assertEqual([_values.known(one) for one in (into, x)], [False, True])
        self.assertGreater(into.min().item(), 0)

    def test_what_a_graph_launches_is_unknown_after_each_replay(self):
        kernel = Loaded(b"doubled", ptx(b"doubled", 1))
        extension = Extension("tan", b"tangent")
        launches = [kernel.launch, extension.launch]
        try:
            import triton
            import triton.language as tl
        except ImportError:
            pass
        else:

            def filled(into):
                tl.store(into + tl.arange(0, 32), 1.0)

            filled.__globals__["tl"] = tl
            launches.append(triton.jit(filled)[(1,)])
            launches[-1](torch.ones(32, device="cuda"))
        for launch in launches:
            into = torch.ones(32, device="cuda")
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                launch(into)
                found = into + 1
            for _ in range(2):
                into.copy_(torch.ones(32))
                self.assertTrue(_values.known(into))
                graph.replay()
                self.assertEqual([_values.known(one) for one in (into, found)], [False, False])

    def test_what_jiterator_launches_is_unknown(self):
        twice = torch.cuda.jiterator._create_jit_fn("template <typename T> T twice(T x) { return x + x; }")
        x = torch.ones(32, device="cuda")
        found = twice(x)
        self.assertEqual([_values.known(one) for one in (x, found)], [True, False])
        self.assertGreater(found.min().item(), 0)
        self.assertIn(("twice", "a kernel for jiterator"), _values.unknown())


class TestOperations(unittest.TestCase):
    def test_threads_that_threading_did_not_start(self):
        found = queue.Queue()
        _thread.start_new_thread(lambda number: found.put((torch.ones(3, device="cuda") * number).sum().item()), (5,))
        self.assertEqual(found.get(timeout=60), 15)

    def test_given_results_whose_size_depends_on_values(self):
        x = torch.tensor([1.0, 0.0, 2.0], device="cuda")
        places = torch.empty(0, 1, dtype=torch.long, device="cuda")
        chosen = torch.empty(0, device="cuda")
        torch.nonzero(x, out=places)
        torch.masked_select(x, x > 0, out=chosen)
        self.assertEqual((places.flatten().tolist(), chosen.tolist()), ([0, 2], [1, 2]))

    def test_values_that_a_gpu_refuses(self):
        x = torch.arange(3.0, device="cuda")
        far = torch.tensor([7], device="cuda")
        for refused in (
            lambda: torch.gather(x, 0, far),
            lambda: x.clone().scatter_(0, far, 1.0),
            lambda: torch.nn.functional.one_hot(far, 3),
            lambda: torch.nn.functional.binary_cross_entropy(x, x),
            lambda: torch.multinomial(-x, 1),
            lambda: torch.repeat_interleave(x, torch.tensor([-1, 1, 1], device="cuda")),
            lambda: torch.bincount(-far),
            lambda: x.clone().masked_scatter_(x >= 0, x[:1]),
        ):
            with self.assertRaises((RuntimeError, IndexError)):
                refused()

    def test_polynomials_of_too_many_terms(self):
        """The CPU's function would take days."""
        point = torch.rand(3, device="cuda")
        found = torch.special.laguerre_polynomial_l(point, torch.tensor(1 << 40, device="cuda"))
        self.assertFalse(_values.known(found))
        self.assertIn(("aten::special_laguerre_polynomial_l", "more than 1073741824 terms in all"), _values.unknown())
        terms = torch.full((1 << 5,), 1 << 20, device="cuda")
        self.assertFalse(_values.known(torch.special.laguerre_polynomial_l(torch.rand(1 << 6, 1, device="cuda"), terms)))
        two = torch.special.laguerre_polynomial_l(point, 2)
        torch.testing.assert_close(two, (point * point - 4 * point + 2) / 2)

    def test_lengths_and_pivots_that_would_end_the_process(self):
        """The CPU's functions leave their tensors' memory with these arguments."""
        data = torch.rand(8, device="cuda")
        far = torch.tensor([3, 1 << 40], device="cuda")
        logits = torch.rand(5, 1, 4, device="cuda").log_softmax(2)
        five = torch.tensor([5], device="cuda")
        words = torch.ones(1, 9, dtype=torch.long, device="cuda")
        losses, alpha = torch.ops.aten._ctc_loss.Tensor(logits, words, five, five - 3)
        back = torch.ops.aten._ctc_loss_backward.Tensor
        segment = torch.segment_reduce(data, "sum", lengths=torch.tensor([3, 5], device="cuda"))
        segments = torch.ops.aten._segment_reduce_backward
        for refused in (
            lambda: torch.segment_reduce(data, "sum", lengths=far, unsafe=True),
            lambda: segments(segment, segment, data, "sum", lengths=far),
            lambda: segments(segment, segment, data, "sum", offsets=torch.tensor([0, 3, -8], device="cuda")),
            lambda: torch.linalg.ldl_solve(data.diag(), torch.full((8,), -1, dtype=torch.int32, device="cuda")[:7], data[:, None]),
            lambda: torch.linalg.ldl_solve(data[:1].diag(), torch.tensor([-1], dtype=torch.int32, device="cuda"), data[:1, None]),
            lambda: back(losses, logits, words, five, five + 4, losses, alpha, 0),
            lambda: back(losses, logits, words, five * 2, five - 3, losses, alpha, 0),
        ):
            with self.assertRaises((RuntimeError, IndexError)):
                refused()
        back(losses, logits, words, five, five - 3, losses, alpha, 0)
        block = torch.tensor([-1, -1, 3], dtype=torch.int32, device="cuda")
        matrix = torch.eye(3) + 0.1
        expected = torch.linalg.ldl_solve(matrix, block.cpu(), torch.ones(3, 1))
        torch.testing.assert_close(torch.linalg.ldl_solve(matrix.cuda(), block, torch.ones(3, 1, device="cuda")).cpu(), expected)


if __name__ == "__main__":
    unittest.main()
