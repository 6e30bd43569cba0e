"""PyTorch's calls of the libraries other than libcudart, on the simulator: what runs, what it allocates, what is
counted."""

import glob
import os
import subprocess
import sys
import tempfile
import unittest
import warnings

MiB = 1 << 20
run_folder = tempfile.TemporaryDirectory()
os.environ["NEAP_RUN_DIR"] = run_folder.name
os.environ["PYTORCH_KERNEL_CACHE_PATH"] = run_folder.name
os.environ.setdefault("NEAP_SIM", f"a100-40gb,values=none,world=libraries-{os.getpid()}")
for setting in ("CUBLAS_WORKSPACE_CONFIG", "CUBLASLT_WORKSPACE_SIZE", "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"):
    os.environ.pop(setting, None)
warnings.filterwarnings("ignore")
import torch

GPU = "cuda"
VERSION = tuple(int(part) for part in torch.__version__.split("+")[0].split(".")[:2])
TYPES = (torch.float32, torch.float16, torch.bfloat16, torch.float64)


def ones(*shape, dtype=torch.float32):
    return torch.ones(*shape, dtype=dtype, device=GPU)


def peak_of(function):
    """The most bytes that PyTorch allocated during the call, beyond what it had before. The result counts."""
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    result = function()
    torch.cuda.synchronize()
    peak = torch.cuda.max_memory_allocated() - before
    del result
    return peak


def first_product():
    """The peak of a process's first product: the result, 1 MiB, and the workspace that PyTorch gives cuBLAS."""
    operand = ones(512, 512)
    return peak_of(lambda: operand @ operand)


def tally():
    """(gap, function) -> (library, low, high)"""
    with open(os.path.join(run_folder.name, f"simulated.{os.getpid()}"), encoding="utf-8") as file:
        rows = [line.split() for line in file]
    return {(row[0], row[-4]): (" ".join(row[1:-4]), int(row[-2]), int(row[-1])) for row in rows}


FIRST = first_product()
OWN_CUSPARSELT = glob.glob(os.path.join(glob.escape(os.path.dirname(torch.__file__)), "lib", "libcusparseLt-*"))


class Products(unittest.TestCase):
    def test_the_first_product_takes_pytorchs_workspace(self):
        self.assertEqual(torch.cuda.get_device_capability(), (8, 0))
        self.assertEqual(FIRST, MiB + 8519680)  # 8.125 MiB

    def test_on_hopper_the_workspace_is_32_mib(self):
        environment = {**os.environ, "NEAP_SIM": f"h100-80gb,world=libraries-hopper-{os.getpid()}"}
        folder = os.path.dirname(os.path.abspath(__file__))
        code = f"import sys; sys.path.insert(0, {folder!r}); import test_libraries as t; print(t.FIRST)"
        done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
        self.assertEqual(int(done.stdout), 33 * MiB)

    def test_each_type(self):
        for dtype in TYPES:
            with self.subTest(dtype=dtype):
                a = ones(64, 64, dtype=dtype)
                batch = ones(4, 64, 64, dtype=dtype)
                row = ones(64, dtype=dtype)
                self.assertEqual((a @ a).shape, (64, 64))
                self.assertEqual(torch.bmm(batch, batch).shape, (4, 64, 64))
                self.assertEqual(torch.addmm(row, a, a).shape, (64, 64))
                self.assertEqual(torch.baddbmm(batch, batch, batch).shape, (4, 64, 64))
                self.assertEqual((a @ row).shape, (64,))
                self.assertEqual(torch.dot(row, row).item(), 0)  # not computed

    def test_a_layer_forward_and_backward(self):
        for dtype in TYPES:
            with self.subTest(dtype=dtype):
                layer = torch.nn.Linear(64, 32, device=GPU, dtype=dtype)
                x = ones(8, 64, dtype=dtype).requires_grad_()
                layer(x).sum().backward()
                self.assertEqual((x.grad.shape, layer.weight.grad.shape), ((8, 64), (32, 64)))

    def test_cublaslt(self):
        if VERSION >= (2, 5):
            one = torch.ones((), device=GPU)
            eight = ones(64, 64).to(torch.float8_e4m3fn)
            try:
                product = torch._scaled_mm(eight, eight.t(), one, one, out_dtype=torch.bfloat16)
            except RuntimeError as error:
                self.assertIn("compute capability", str(error))  # the A100 has no such units
            else:
                self.assertEqual(product.shape, (64, 64))
        numbers = torch.ones(64, 64, dtype=torch.int8, device=GPU)
        self.assertEqual(torch._int_mm(numbers, numbers).dtype, torch.int32)
        self.assertEqual(torch._addmm_activation(ones(64), ones(64, 64), ones(64, 64), use_gelu=True).shape, (64, 64))
        torch.backends.cuda.preferred_blas_library("cublaslt")
        self.addCleanup(torch.backends.cuda.preferred_blas_library, "cublas")
        self.assertEqual((ones(64, 64) @ ones(64, 64)).shape, (64, 64))
        self.assertNotIn(("workspace", "cublasLtMatmul"), tally())  # PyTorch gives all that it lets cuBLASLt ask for


class Linalg(unittest.TestCase):
    def test_each_decomposition(self):
        lin = torch.linalg
        cases = {
            "cholesky": lambda a, b: lin.cholesky(a),
            "cholesky_inverse": lambda a, b: torch.cholesky_inverse(a),
            "cholesky_solve": lambda a, b: torch.cholesky_solve(b, a),
            "qr": lambda a, b: lin.qr(a),
            "qr complete": lambda a, b: lin.qr(a, mode="complete"),
            "svd": lambda a, b: lin.svd(a),
            "svd gesvd": lambda a, b: lin.svd(a, driver="gesvd"),
            "svd gesvda": lambda a, b: lin.svd(a, driver="gesvda"),
            "svd gesvdj": lambda a, b: lin.svd(a, driver="gesvdj"),
            "svdvals": lambda a, b: lin.svdvals(a),
            "eigh": lambda a, b: lin.eigh(a),
            "eigvalsh": lambda a, b: lin.eigvalsh(a),
            "solve": lambda a, b: lin.solve(a, b),
            "lstsq": lambda a, b: lin.lstsq(a, b),
            "inv": lambda a, b: lin.inv(a),
            "pinv": lambda a, b: lin.pinv(a),
            "lu": lambda a, b: lin.lu(a),
            "lu_solve": lambda a, b: lin.lu_solve(*lin.lu_factor(a), b),
            "slogdet": lambda a, b: lin.slogdet(a),
            "ldl": lambda a, b: lin.ldl_solve(*lin.ldl_factor(a), b),
            "triangular": lambda a, b: lin.solve_triangular(a, b, upper=True),
            "householder": lambda a, b: lin.householder_product(a, a[..., 0].contiguous()),
            "ormqr": lambda a, b: torch.ormqr(a, a[..., 0].contiguous(), b),
        }
        for dtype in (torch.float32, torch.float64, torch.complex64, torch.complex128):
            for shape in ((48, 48), (4, 16, 16), (2, 600, 600)):
                a = ones(*shape, dtype=dtype)
                b = ones(*shape[:-1], 3, dtype=dtype)
                for name, function in cases.items():
                    with self.subTest(name, dtype=dtype, shape=shape):
                        function(a, b)
                        torch.cuda.synchronize()
        counted = tally()
        for function in ("cusolverDnSpotrf_bufferSize", "cusolverDnZgesvdj_bufferSize"):
            if ("workspace", function) in counted:
                self.assertLess(counted["workspace", function][1], counted["workspace", function][2])
        self.assertEqual([key for key in counted if key[0] == "refused" and key[1].startswith("cusolver")], [])

    def test_general_eigenvalues(self):
        # PyTorch computes on the device whether all values are finite, and reads the answer. Here it reads "not
        # finite".
        with self.assertRaisesRegex(RuntimeError, "infs or NaNs"):
            torch.linalg.eig(ones(16, 16))

    def test_a_status_is_zero_where_memory_was_not(self):
        for _repeat in range(8):
            dirty = [torch.full((128,), 7, dtype=torch.int32).to(GPU) for _ in range(16)]
            del dirty
            for function in (torch.linalg.cholesky_ex, torch.linalg.inv_ex, torch.linalg.lu_factor_ex):
                status = function(ones(4, 4, 4))[-1]
                self.assertEqual(status.tolist(), [0] * 4, function)


class Transforms(unittest.TestCase):
    def test_each_kind(self):
        for dtype in (torch.float32, torch.float64, torch.float16):
            with self.subTest(dtype=dtype):
                x = ones(2, 64, 64, dtype=dtype)
                self.assertEqual(torch.fft.fft(x).shape, (2, 64, 64))
                self.assertEqual(torch.fft.rfft(x).shape, (2, 64, 33))
                self.assertEqual(torch.fft.irfft(torch.fft.rfft(x)).shape, (2, 64, 64))
                self.assertEqual(torch.fft.ifftn(torch.fft.fft2(x)).shape, (2, 64, 64))
                self.assertEqual(torch.fft.rfft2(x).shape, (2, 64, 33))
        signal = torch.stft(ones(4000), 256, window=ones(256), return_complex=True)
        self.assertEqual(signal.shape[0], 129)

    def test_the_work_area_is_as_large_as_the_data(self):
        x = torch.ones(32, 4096, dtype=torch.complex64, device=GPU)
        torch.fft.fft(x)
        self.assertEqual(peak_of(lambda: torch.fft.fft(x)), 2 * x.nbytes)  # the result and the work area
        _, low, high = tally()["workspace", "cufftXtMakePlanMany"]
        self.assertGreater(low, 0)
        self.assertGreaterEqual(high, 8 * low)


class Sparse(unittest.TestCase):
    def test_products(self):
        at = torch.arange(64, device=GPU)
        for dtype in (torch.float32, torch.float64, torch.complex64):
            with self.subTest(dtype=dtype):
                values = ones(64, dtype=dtype)
                dense = ones(64, 32, dtype=dtype)
                row = ones(64, dtype=dtype)
                square = ones(64, 64, dtype=dtype)
                csr = torch.sparse_csr_tensor(torch.arange(65, device=GPU), at, values, (64, 64), check_invariants=False)
                coo = torch.sparse_coo_tensor(torch.stack([at, at]), values, (64, 64), is_coalesced=True,
                                              check_invariants=False)
                bsr = torch.sparse_bsr_tensor(at[:5], at[:4], ones(4, 16, 16, dtype=dtype), (64, 64), check_invariants=False)
                for matrix in (csr, coo, bsr):
                    self.assertEqual((matrix @ dense).shape, (64, 32))
                    self.assertEqual((matrix @ row).shape, (64,))
                self.assertEqual((csr @ csr).shape, (64, 64))
                self.assertEqual((csr + csr)._nnz(), 64)
                self.assertEqual(torch.sparse.sampled_addmm(csr, square, square).shape, (64, 64))
                self.assertEqual(torch.triangular_solve(dense, csr)[0].shape, (64, 32))
                self.assertEqual(torch.triangular_solve(dense, bsr)[0].shape, (64, 32))
        counted = tally()
        self.assertEqual(counted["workspace", "cusparseSpMM_bufferSize"][:2], ("cuSPARSE", 0))
        self.assertIn(("workspace", "cusparseSpGEMM_compute"), counted)  # the number of elements of the product

    @unittest.skipIf(OWN_CUSPARSELT, "this PyTorch brings NVIDIA's cuSPARSELt, under a name of its own")
    def test_two_of_four(self):
        for dtype, bytes in ((torch.float16, 128 * 128 * 2 * 9 // 16), (torch.int8, 128 * 128 * 10 // 16)):
            dense = torch.ones(128, 128, dtype=dtype, device=GPU)
            compressed = torch._cslt_compress(dense)
            self.assertEqual(compressed.numel() * compressed.element_size(), bytes)
        half = torch._cslt_compress(ones(128, 128, dtype=torch.float16))
        self.assertEqual(torch._cslt_sparse_mm(half, ones(128, 64, dtype=torch.float16)).shape, (128, 64))


class Others(unittest.TestCase):
    def test_a_profiler_sees_the_host(self):
        from torch.profiler import ProfilerActivity, profile

        with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA], profile_memory=True) as profiler:
            ones(64, 64) @ ones(64, 64)
            torch.cuda.synchronize()
        self.assertIn("aten::mm", [event.key for event in profiler.key_averages()])

    def test_marks(self):
        torch.cuda.nvtx.range_push("a")
        torch.cuda.nvtx.mark("b")
        torch.cuda.nvtx.range_pop()
        torch.cuda.nvtx.range_end(torch.cuda.nvtx.range_start("c"))

    def test_code_compiled_at_run_time(self):
        add = torch.cuda.jiterator._create_jit_fn("template <typename T> T add(T x, T y) { return x + y; }")
        self.assertEqual(add(ones(8), ones(8)).shape, (8,))
        self.assertEqual(torch.special.bessel_j0(ones(8)).shape, (8,))
        self.assertEqual(tally()["values", "nvrtcCompileProgram"][0], "nvRTC")

    def test_files_that_the_device_reads_are_refused(self):
        if hasattr(torch.cuda, "gds"):
            with self.assertRaisesRegex(RuntimeError, "not supported"):
                torch.cuda.gds.GdsFile(os.path.join(run_folder.name, "file"), os.O_CREAT | os.O_RDWR)
            self.assertIn(("refused", "cuFileHandleRegister"), tally())


if __name__ == "__main__":
    unittest.main()
