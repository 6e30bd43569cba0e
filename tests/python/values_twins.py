"""Operators that PyTorch has for CUDA alone, computed by their twins on the host (values=full), against what it has for the CPU."""

import copy
import itertools
import os
import unittest.mock
import warnings

os.environ["NEAP_SIM"] = f"h100-80gb,values=full,world=twins-{os.getpid()}"
warnings.simplefilter("ignore")

import torch
import torch.nn.functional as F
from neap import _twins, _twins_recurrent, _values
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.utils.rnn import pack_padded_sequence

BOUNDS = {torch.float32: 1e-4, torch.bfloat16: 3e-2, torch.half: 3e-2, torch.float8_e4m3fn: 3e-2}
ops = torch.ops.aten


def with_gradients(function, *inputs):
    """The results of `function` on copies of these tensors, and the gradients of a sum that gives each element
    another weight."""
    leaves = [one.detach().clone().requires_grad_() for one in inputs]
    results = function(*leaves)
    results = [results] if isinstance(results, torch.Tensor) else list(results)
    total = sum((one * torch.arange(one.numel(), device=one.device).reshape(one.shape).cos().to(one.dtype)).sum() for one in results)
    return [*results, *torch.autograd.grad(total, leaves)]


def moved(*tensors):
    return [one.cuda() for one in tensors]


class Twins(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(0)

    def tearDown(self):
        self.assertEqual(_values.unknown(), [])

    def close(self, found, right, dtype=torch.float32):
        bound = BOUNDS[dtype]
        for one, other in zip(found, right, strict=True):
            self.assertTrue(one.is_cuda)
            torch.testing.assert_close(one.detach().cpu().float(), other.detach().float(), atol=bound, rtol=bound)

    def same(self, function, *inputs):
        self.close(with_gradients(function, *moved(*inputs)), with_gradients(function, *inputs), inputs[0].dtype)


class Attention(Twins):
    def one(self, backend, dtype, heads, mask, causal, size):
        query, key, value = (torch.randn(2, count, 16, size, dtype=dtype) for count in (4, heads, heads))
        bias = {"none": None, "bool": torch.rand(2, 1, 16, 16) > 0.3}.get(mask, torch.randn(16, 16, dtype=dtype))

        def run(which, *tensors):
            fixed = bias.to(tensors[0].device) if mask == "bool" else None
            options = {"is_causal": causal, "enable_gqa": heads != 4, "scale": 0.3}
            with sdpa_kernel(which):
                return F.scaled_dot_product_attention(*tensors[:3], attn_mask=tensors[3] if tensors[3:] else fixed, **options)

        inputs = (query, key, value, bias) if mask == "float" else (query, key, value)
        try:
            found = with_gradients(lambda *tensors: run(backend, *tensors), *moved(*inputs))
        except RuntimeError as error:
            self.assertIn("No available kernel", str(error))
            return 0
        self.close(found, with_gradients(lambda *tensors: run(SDPBackend.MATH, *tensors), *inputs), dtype)
        return 1

    def test_each_backend(self):
        backends = (SDPBackend.EFFICIENT_ATTENTION, SDPBackend.FLASH_ATTENTION, SDPBackend.CUDNN_ATTENTION)
        cases = itertools.product(backends, (torch.float32, torch.bfloat16), (4, 2), ("none", "bool", "float"), (False, True), (8, 24))
        self.assertGreater(sum(self.one(*case) for case in cases if case[3] == "none" or not case[4]), 40)

    def test_dropout(self):
        """The seed gives the mask, and backward has forward's."""
        for backend, dtype in (
            (SDPBackend.EFFICIENT_ATTENTION, torch.float32),
            (SDPBackend.FLASH_ATTENTION, torch.half),
            (SDPBackend.CUDNN_ATTENTION, torch.half),
        ):
            query = torch.zeros(2, 4, 64, 64, dtype=dtype, device="cuda")
            value = torch.eye(64, dtype=dtype, device="cuda").expand(2, 4, 64, 64).clone().requires_grad_()
            with sdpa_kernel(backend):
                torch.manual_seed(1)
                first, second = (F.scaled_dot_product_attention(query, query, value, dropout_p=0.25) for _ in range(2))
                torch.manual_seed(1)
                again = F.scaled_dot_product_attention(query, query, value, dropout_p=0.25)
            self.assertTrue(torch.equal(first, again))
            self.assertFalse(torch.equal(first, second))
            self.assertAlmostEqual((first == 0).float().mean().item(), 0.25, delta=0.02)
            diagonal = first.float().diagonal(dim1=-2, dim2=-1)
            gradient, *_ = torch.autograd.grad(diagonal.sum(), value)
            torch.testing.assert_close(gradient.float().diagonal(dim1=-2, dim2=-1), diagonal.detach())

    def test_several_lengths_in_one(self):
        query, key, value, coming = (torch.randn(17, 4, 16, dtype=torch.half) for _ in range(4))
        starts = torch.tensor([0, 5, 14, 17], dtype=torch.int32).cuda()

        def right(*tensors):
            parts = ([one[begin:end].transpose(0, 1)[None] for one in tensors] for begin, end in ((0, 5), (5, 14), (14, 17)))
            return torch.cat([F.scaled_dot_product_attention(*part, is_causal=True)[0].transpose(0, 1) for part in parts])

        leaves = [one.float().requires_grad_() for one in (query, key, value)]
        wanted = right(*leaves)
        gradients = torch.autograd.grad(wanted, leaves, coming.float())
        q, k, v, g = moved(query, key, value, coming)
        found = ops._flash_attention_forward(q, k, v, starts, starts, 9, 9, 0.0, True, False)
        back = ops._flash_attention_backward(g, q, k, v, *found[:2], starts, starts, 9, 9, 0.0, True, *found[2:4])
        self.close((found[0], *back), (wanted, *gradients), torch.half)
        q, k, v, g = (one[None] for one in (q, k, v, g))
        found = ops._efficient_attention_forward(q, k, v, None, starts, starts, 9, 9, 0.0, 1, True)
        back = ops._efficient_attention_backward(g, q, k, v, None, found[0], starts, starts, 9, 9, found[1], 0.0, *found[2:4], 1, False)
        self.close([one[0] for one in (found[0], *back[:3])], (wanted, *gradients), torch.half)
        near = torch.arange(17) - torch.arange(17)[:, None]
        window = ops._flash_attention_forward(q, k, v, None, None, 17, 17, 0.0, False, False, window_size_left=2, window_size_right=1)
        whole = [one[None].transpose(1, 2) for one in (query, key, value)]
        wanted = F.scaled_dot_product_attention(*whole, attn_mask=(near >= -2) & (near <= 1))
        self.close([window[0].transpose(1, 2)], [wanted], torch.half)


class Networks(Twins):
    def test_recurrent(self):
        kinds = {"lstm": nn.LSTM, "gru": nn.GRU, "tanh": nn.RNN, "relu": nn.RNN}
        for kind, layers, both, packed, bias, projected, dtype in itertools.product(
            kinds, (1, 2), (False, True), (False, True), (False, True), (0, 3), (torch.float32, torch.bfloat16)
        ):
            if (projected and kind != "lstm") or (dtype != torch.float32 and (projected or not bias)):
                continue
            options = {"num_layers": layers, "bidirectional": both, "batch_first": packed, "bias": bias}
            options |= {"nonlinearity": kind} if kind in ("tanh", "relu") else {"proj_size": projected} if projected else {}
            network = kinds[kind](6, 5, **options).to(dtype)

            def run(given, *weights, network=network, packed=packed):
                network = copy.deepcopy(network).to(given.device)
                for (_, one), weight in zip(list(network.named_parameters()), weights, strict=True):
                    one.data.copy_(weight.data)
                batch = pack_padded_sequence(given, [7, 5, 5, 2], batch_first=True) if packed else given
                output, state = network(batch)
                output = output.data if packed else output
                parameters = list(network.parameters())
                total = output.sin().sum() + sum((one * one).sum() for one in (state if isinstance(state, tuple) else [state]))
                return [output, *torch.autograd.grad(total, [given, *parameters])]

            given = torch.randn(4, 7, 6, dtype=dtype)
            weights = list(network.parameters())
            with self.subTest(kind=kind, layers=layers, both=both, packed=packed, bias=bias, projected=projected, dtype=dtype):
                found = run(given.cuda().requires_grad_(), *weights)
                self.close(found, run(given.clone().requires_grad_(), *weights), dtype)

    def test_dropout_between_layers(self):
        network = nn.LSTM(4, 32, 2, dropout=0.5).cuda()
        given = torch.randn(5, 3, 4, device="cuda", requires_grad=True)
        self.assertFalse(torch.equal(network(given)[0], network(given)[0]))
        seen = []
        run = _twins_recurrent.Network.run

        def kept(*arguments):
            seen.append(run(*arguments))
            return seen[-1]

        with unittest.mock.patch.object(_twins_recurrent.Network, "run", kept):
            torch.autograd.grad(network(given)[0].sum(), given)
        self.assertTrue(torch.equal(seen[0][0], seen[1][0]), "backward drew other masks than forward")

    def test_cells(self):
        for cell, bias in itertools.product((nn.LSTMCell, nn.GRUCell), (True, False)):
            weights = list(cell(6, 5, bias=bias).parameters())
            function = {nn.LSTMCell: torch.lstm_cell, nn.GRUCell: torch.gru_cell}[cell]
            state = torch.randn(2, 4, 5)
            for dtype in (torch.float32, torch.bfloat16):
                inputs = [one.to(dtype) for one in (torch.randn(4, 6), *state[: 2 if cell is nn.LSTMCell else 1], *weights)]
                states = 2 if cell is nn.LSTMCell else 1

                def run(given, *others, function=function, states=states):
                    return function(given, others[:2] if states == 2 else others[0], *others[states:])

                self.same(run, *inputs)


class Norms(Twins):
    def test_batch_norm(self):
        for dtype, sizes in itertools.product((torch.float32, torch.bfloat16, torch.half), ((8, 3), (4, 3, 5, 5), (2, 3, 4, 4, 4))):
            given = (torch.randn(sizes) * 2 + 1).to(dtype)
            weight = torch.rand(3)
            bias = torch.randn(3)
            statistics = {}

            def run(x, weight, bias, statistics=statistics):
                mean = torch.zeros(3, device=x.device)
                variance = torch.ones(3, device=x.device)
                found = F.batch_norm(x, mean, variance, weight, bias, True), F.batch_norm(x, mean, variance, weight, bias, False)
                statistics[x.device.type] = mean, variance
                return found

            found, right = (with_gradients(run, *inputs) for inputs in (moved(given, weight, bias), (given, weight, bias)))
            self.close((*found, *statistics["cuda"]), (*right, *statistics["cpu"]), dtype)

    def test_parts_of_synchronized(self):
        given = torch.randn(6, 3, 4)
        coming = torch.randn(6, 3, 4)
        norm = nn.BatchNorm1d(3)
        norm.weight.data.uniform_()
        leaf = given.clone().requires_grad_()
        output = norm(leaf)
        gradients = torch.autograd.grad(output, [leaf, *norm.parameters()], coming)
        x, dy, weight, bias = moved(given, coming, norm.weight.detach(), norm.bias.detach())
        means, spreads = (torch.stack(one) for one in zip(*(torch.batch_norm_stats(part, 1e-5) for part in (x[:2], x[2:])), strict=True))
        running = moved(torch.zeros(3), torch.ones(3))
        counts = torch.tensor([8.0, 16.0], device="cuda")
        mean, invstd = torch.batch_norm_gather_stats_with_counts(x, means, spreads, *running, 0.1, 1e-5, counts)
        self.close(running, (norm.running_mean, norm.running_var))
        self.close([torch.batch_norm_elemt(x, weight, bias, mean, invstd, 1e-5)], [output])
        sums = torch.batch_norm_backward_reduce(dy, x, mean, invstd, weight, True, True, True)
        total = torch.tensor([24], dtype=torch.int32, device="cuda")
        self.close((torch.batch_norm_backward_elemt(dy, x, mean, invstd, weight, *sums[:2], total), *sums[2:]), gradients)

    def test_rms_norm_and_dropout(self):
        for dtype in (torch.float32, torch.bfloat16):
            self.same(lambda x, w: torch.rms_norm(x, [8], w, 1e-5), torch.randn(4, 5, 8).to(dtype), torch.rand(8).to(dtype))
        dropped, mask = torch._fused_dropout(torch.ones(10_000, device="cuda"), 0.75)
        self.assertAlmostEqual(dropped.mean().item(), 1, delta=0.03)
        self.close([torch._masked_scale(dropped, mask, 2.0)], [dropped.cpu() * 2])


class Products(Twins):
    def test_types_of_results(self):
        first, second, third = (torch.randn(*sizes).bfloat16() for sizes in ((8, 16), (16, 8), (8, 8)))
        right = first.float() @ second.float()
        a, b, c = moved(first, second, third)
        wide = {"out_dtype": torch.float32}
        found = [torch.mm(a, b, **wide), torch.bmm(a[None], b[None], **wide)[0], torch.mm(a, b, **wide, out=torch.empty(8, 8).cuda())]
        self.close(found, [right] * 3)
        found = [torch.addmm(c, a, b, **wide, alpha=2), torch.baddbmm(c[None], a[None], b[None], **wide)[0]]
        self.close(found, [right * 2 + third, right + third])

    def test_scaled_groups(self):
        narrow = torch.float8_e4m3fn
        ends = torch.tensor([16, 48, 64], dtype=torch.int32)
        spans = ((0, 16), (16, 48), (48, 64))
        first = torch.randn(64, 32).to(narrow)
        second = torch.randn(3, 48, 32).to(narrow).transpose(1, 2)
        rows = torch.rand(64)
        columns = torch.rand(3, 48)
        found = torch._scaled_grouped_mm(*moved(first, second, rows, columns, ends), out_dtype=torch.bfloat16)
        whole = first.float() * rows[:, None]
        others = second.float() * columns[:, None]
        self.close([found], [torch.cat([whole[begin:end] @ others[at] for at, (begin, end) in enumerate(spans)])], narrow)
        first = torch.randn(32, 64).to(narrow)
        second = torch.randn(48, 64).to(narrow).t()
        rows = torch.rand(96)
        columns = torch.rand(144)
        found = torch._scaled_grouped_mm(*moved(first, second, rows, columns, ends), out_dtype=torch.bfloat16)
        parts = [first[:, begin:end].float() @ second[begin:end].float() for begin, end in spans]
        self.close([found], [torch.stack(parts) * rows.view(3, 32, 1) * columns.view(3, 1, 48)], narrow)

    def test_weights_of_four_bits(self):
        whole = torch.randint(0, 16, (64, 256), dtype=torch.int32)
        given = torch.randn(4, 256).bfloat16()
        scales = torch.rand(4, 64, 2).bfloat16()
        packed = torch._convert_weight_to_int4pack((whole[:, ::2] << 4 | whole[:, 1::2]).to(torch.uint8).cuda(), 2)
        found = torch._weight_int4pack_mm(given.cuda(), packed, 64, scales.cuda())
        kept = torch._convert_weight_to_int4pack_for_cpu(whole, 2)
        self.close([found / 10], [torch._weight_int4pack_mm_for_cpu(given, kept, 64, scales) / 10], torch.bfloat16)

    def test_half_of_the_weights_zero(self):
        weight = torch.randn(128, 128).half() * torch.tensor([1, 0, 0, 1]).tile(128, 32)
        given = torch.randn(128, 128).half()
        bias = torch.randn(128).half()
        compressed = torch._cslt_compress(weight.cuda())
        found = torch._cslt_sparse_mm(compressed, given.cuda(), bias=bias.cuda())
        self.close([found], [weight.float() @ given.float() + bias.float()[:, None]], torch.half)

    def test_convolutions(self):
        given = torch.randn(2, 4, 9, 9)
        weight = torch.randn(6, 2, 3, 3)
        bias = torch.randn(6)
        x, w, b = moved(given, weight, bias)
        right = F.conv2d(given, weight, bias, 2, 1, 1, 2)
        turned = torch.randn(4, 3, 3, 3)
        deep = torch.randn(4, 1, 3, 3)
        deeper = torch.randn(4, 1, 3, 3, 3)
        cube = torch.randn(2, 4, 5, 6, 7)
        sizes = ([1, 1], [2, 2], [1, 1], 2)
        off = (False, False, False)
        once = [1, 1, 1]
        self.close(
            [
                torch.cudnn_convolution(x, w, *sizes, *off),
                torch.cudnn_convolution_relu(x, w, b, [2, 2], [1, 1], [1, 1], 2),
                torch.cudnn_convolution_add_relu(x, w, right.cuda(), 2.0, b, [2, 2], [1, 1], [1, 1], 2),
                torch.cudnn_convolution_transpose(x, turned.cuda(), [1, 1], *sizes, *off),
                torch._C._nn._conv_depthwise2d(x, deep.cuda(), [3, 3], None, [1, 1], [1, 1], [1, 1]),
                ops.conv_depthwise3d(cube.cuda(), deeper.cuda(), [3, 3, 3], None, once, once, once),
            ],
            [
                F.conv2d(given, weight, None, 2, 1, 1, 2),
                right.relu(),
                (3 * right).relu(),
                F.conv_transpose2d(given, turned, None, 2, 1, 1, 2),
                F.conv2d(given, deep, None, 1, 1, 1, 4),
                F.conv3d(cube, deeper, None, 1, 1, 1, 4),
            ],
        )

    def test_grids(self):
        self.same(lambda x, grid: F.grid_sample(x, grid, align_corners=True), torch.randn(2, 3, 6, 6), torch.rand(2, 5, 5, 2) * 2.2 - 1.1)
        self.same(lambda theta: F.affine_grid(theta, [2, 3, 5, 5], align_corners=True), torch.randn(2, 2, 3))

    def test_connectionist_temporal_classification(self):
        likely = torch.randn(12, 3, 6).log_softmax(2)
        targets = torch.randint(1, 6, (9,), dtype=torch.int32)
        lengths = ([12, 12, 12], [4, 3, 2])
        self.same(lambda x: F.ctc_loss(x, targets, *lengths, reduction="none"), likely)
        found, _ = torch._cudnn_ctc_loss(likely.cuda(), targets, *lengths, 0, False, False)
        self.close([found], [F.ctc_loss(likely, targets, *lengths, reduction="none")])


def dense(value):
    if isinstance(value, (tuple, list)):
        return [dense(one) for one in value]
    value = value.detach()
    value = value.to_padded_tensor(0.0) if value.is_nested else value.dequantize() if value.is_quantized else value
    return value.to_dense() if value.layout != torch.strided else value


def sparse(device):
    """With an element that occurs twice."""
    return torch.sparse_coo_tensor(torch.tensor([[0, 1, 1, 2], [2, 0, 0, 1]]), torch.tensor([3.0, 4, 5, 6]), (3, 4)).to(device)


def nested(device):
    return torch.nested.nested_tensor([torch.arange(6.0).view(2, 3), torch.arange(9.0).view(3, 3)], device=device)


def sparse_gradients(device):
    words = nn.Embedding.from_pretrained(torch.arange(18.0).view(6, 3), freeze=False, sparse=True).to(device)
    optimizer = torch.optim.SparseAdam(words.parameters(), lr=0.1)
    for _ in range(3):
        optimizer.zero_grad()
        words(torch.tensor([1, 3, 1], device=device)).pow(2).sum().backward()
        optimizer.step()
    left = sparse(device).requires_grad_()
    right = torch.arange(12.0, device=device).view(4, 3).requires_grad_()
    torch.sparse.mm(left, right).sum().backward()
    return words.weight, left.grad, right.grad


class Kinds(unittest.TestCase):
    """Of tensors."""

    def test_kinds(self):
        whole = torch.arange(12.0).view(3, 4)
        for number, one in enumerate((
            lambda d: (sparse(d).to_dense(), sparse(d).coalesce().values(), sparse(d).t(), -sparse(d), torch.cat([sparse(d)] * 2)),
            lambda d: (sparse(d) + sparse(d), sparse(d).add_(sparse(d) * 2), sparse(d) * sparse(d), whole.to(d) + sparse(d)),
            lambda d: (torch.sparse.sum(sparse(d), 1), torch.sparse.softmax(sparse(d), 1), (whole.to(d) % 3).to_sparse()),
            lambda d: ((whole.to(d) % 3).to_sparse_csr(), (whole.to(d) % 3).to_sparse_csr() @ whole.t().to(d)),
            sparse_gradients,
            lambda d: (nested(d), nested(d) * 2, nested(d).softmax(-1), F.linear(nested(d), torch.ones(5, 3, device=d)), nested(d).relu_()),
            lambda d: (nested(d) @ nested(d).transpose(1, 2), *nested(d).unbind()),
            lambda d: (torch.quantize_per_tensor(whole.to(d), 0.1, 3, torch.qint8),),
            lambda d: (torch.quantize_per_channel(whole.to(d), torch.rand(3).add(1).to(d), torch.zeros(3).long().to(d), 0, torch.qint8),),
        )):
            with self.subTest(number):
                torch.manual_seed(0)
                found = dense(one("cuda"))
                torch.manual_seed(0)
                right = dense(one("cpu"))
                torch.testing.assert_close([part.cpu() for part in found], right)
        self.assertEqual(sparse("cuda").coalesce()._nnz(), 3)
        self.assertEqual(_values.unknown(), [])


class Unknown(unittest.TestCase):
    """Runs after the others, which expect that every value is known."""

    def test_1_what_cannot_be_computed_is_named(self):
        library = torch.library.Library("neap_test", "DEF")
        library.define("own(Tensor given) -> Tensor")
        library.impl("own", lambda given: torch.ops.aten.empty_like.default(given), "CUDA")
        found = torch.ops.neap_test.own(torch.ones(5, device="cuda"))
        self.assertFalse(_values.known(found))
        self.assertGreater(found.min().item(), 0)  # likely, not zeros
        self.assertEqual([name for name, _ in _values.unknown()], ["neap_test::own"])

    def test_no_index_leaves_its_tensor(self):
        """The CPU's functions for these do not check their indices, and would end the process with a signal."""
        x = torch.rand(1, 1, 4, 4, device="cuda")
        functions = (
            lambda at: ops.max_pool2d_with_indices_backward(x[..., :2, :2], x, [2, 2], [2, 2], [0, 0], [1, 1], False, at.view(1, 1, 2, 2)),
            lambda at: ops.embedding_dense_backward(x[0, 0], at, 4, -1, True),
            lambda at: ops.adaptive_max_pool2d_backward(x[..., :2, :2], x, at.view(1, 1, 2, 2)),
            lambda at: ops.nll_loss_backward(x.sum(), x[0, 0], at, None, 1, -100, x.sum()),
            lambda at: ops.nll_loss2d_backward(x.sum(), x.view(1, 4, 2, 2), at.view(1, 2, 2), None, 1, -100, x.sum()),
            lambda at: ops._convert_indices_from_csr_to_coo(at, at),
            lambda at: torch.sparse_coo_tensor(at.view(1, 4), torch.ones(4).cuda(), (9,), check_invariants=False).to_dense(),
        )
        for function, wrong in itertools.product(functions, (10**9, -(10**9))):
            at = torch.full((4,), wrong, device="cuda")
            if function is not functions[-1]:
                self.assertRaises(IndexError, function, at)
            torch.ops.neap_values.mark_unknown(at, True)
            self.assertFalse(_values.known(function(at)))

    def test_no_bag_leaves_its_tensor(self):
        places = torch.tensor([0, 1, 2, 1], device="cuda")
        offsets = torch.tensor([0, 2], device="cuda")
        bags = torch.tensor([0, 0, 1, 1], device="cuda")

        def backward(places, bags):
            sizes = torch.tensor([2, 2], device="cuda")
            given = torch.ones(2, 4, device="cuda")
            return ops._embedding_bag_backward(given, places, offsets, bags, sizes, offsets, 5, False, 0, False, None, -1)

        self.assertEqual(backward(places, bags).sum(1).tolist(), [4, 8, 4, 0, 0])
        for wrong in (1 << 40, -1, 5):
            far = torch.tensor([0, 1, 2, wrong], device="cuda")
            self.assertRaises(IndexError, backward, far, bags)
            self.assertRaises(IndexError, backward, places, far)

    def test_no_whole_number_ends_the_process(self):
        least = torch.iinfo(torch.int64).min
        whole = torch.tensor([least, 7], device="cuda")
        minus = torch.full((2,), -1, device="cuda")
        self.assertEqual((whole // minus).tolist(), [least, -7])
        self.assertEqual(torch.div(whole, -1, rounding_mode="trunc").tolist(), [least, -7])
        self.assertEqual(((whole % minus).tolist(), torch.fmod(whole, -1).tolist(), (least % minus).tolist()), ([0, 0], [0, 0], [0, 0]))
        self.assertEqual(torch.full((2,), -(2**31), dtype=torch.int32, device="cuda").floor_divide_(-1).tolist(), [-(2**31)] * 2)
        for divided in ("aten::div.Scalar_mode", "aten::remainder_.Tensor"):  # in compiled code, and without a compiler
            self.assertEqual(_twins.mended(torch, divided, (whole.cpu(), -1))[1].tolist(), [1, -1])
        for wrong in (lambda: torch.lcm(whole, minus + 8), lambda: whole // (minus + 1)):  # a GPU returns any number
            self.assertFalse(_values.known(wrong()))

    def test_no_compressed_index_leaves_its_tensor(self):
        for rows, columns in (([0, 1 << 40, 2], [0, 1]), ([0, 2, 1], [0, 1]), ([0, 1, 2], [0, 1 << 40])):
            given = [torch.tensor(one, device="cuda") for one in (rows, columns)]
            self.assertFalse(_values.known(torch.sparse_csr_tensor(*given, torch.ones(2).cuda(), (2, 3)).to_dense()))
        self.assertRaises(IndexError, ops._convert_indices_from_coo_to_csr, torch.tensor([0, 1 << 40]).cuda(), 3)


if __name__ == "__main__":
    unittest.main(warnings="ignore")
