"""The values that PyTorch's operators have on the simulator (values=full), compared with the CPU's, over PyTorch's
own database of operators: forward and backward, in float32 and bfloat16. Differences are in values_operators.txt,
with the reason; the list may only shrink.

`values_operators.py NAME...` checks these operators alone, and says how they differ.
"""

import math
import os
import pathlib
import sys
import types
import unittest.mock
import warnings

os.environ["NEAP_SIM"] = f"h100-80gb,values=full,world=operators-{os.getpid()}"
warnings.simplefilter("ignore")
# PyTorch's test utilities import it for functions that are not used here, and it is not installed.
sys.modules["expecttest"] = types.ModuleType("expecttest")
sys.modules["expecttest"].TestCase = unittest.TestCase

import torch
from neap import _values
from torch.testing._internal.common_device_type import toleranceOverride
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.opinfo.core import DecorateInfo
from torch.utils._pytree import tree_leaves, tree_map

set_seed = torch.manual_seed
LIST = pathlib.Path(__file__).with_suffix(".txt")
TYPES = (torch.float32, torch.bfloat16)
BOUNDS = {torch.float32: (1e-5, 1.3e-5), torch.bfloat16: (1e-2, 1.6e-2)}  # absolute and relative
SAMPLES = 8  # of an operator and a type
SHARE = 0.95


class Differs(Exception):
    pass


def is_tensor(value):
    return isinstance(value, torch.Tensor)


def fresh(value, device):
    """A copy; a leaf, where a gradient is wanted."""
    if isinstance(value, torch.device):
        return torch.device(device)
    return value.detach().clone().to(device).requires_grad_(value.requires_grad) if is_tensor(value) else value


def bounds(operator, dtype):
    """PyTorch's own for this operator, where it has any."""
    absolute, relative = BOUNDS[dtype]
    for info in operator.decorators:
        for decorator in info.decorators if isinstance(info, DecorateInfo) else (info,):
            if isinstance(decorator, toleranceOverride) and dtype in decorator.d:
                absolute = max(absolute, decorator.d[dtype].atol)
                relative = max(relative, decorator.d[dtype].rtol)
    return {"atol": absolute, "rtol": relative}


def run(operator, sample, device, seed, with_gradient):
    """The results and the gradients of the sum of all results."""
    inputs, options = tree_map(lambda value: fresh(value, device), ((sample.input, *sample.args), sample.kwargs))
    set_seed(seed)
    with unittest.mock.patch("torch.manual_seed", lambda _: set_seed(seed)):  # the database's own is 42 for each call
        results = tree_leaves(sample.output_process_fn_grad(operator(*inputs, **options)))
    wanted = [one for one in tree_leaves((inputs, options)) if is_tensor(one) and one.requires_grad]
    sums = [
        (one.real if one.is_complex() else one).float().sum()
        for one in results
        if with_gradient and is_tensor(one) and one.requires_grad and one.layout == torch.strided
    ]
    gradients = torch.autograd.grad(sums, wanted, allow_unused=True) if sums else ()
    return [one.detach().to("cpu", copy=True) if is_tensor(one) else one for one in (*results, *gradients)]


def compare(found, right, limits):
    if len(found) != len(right):
        raise Differs(f"{len(found)} results, not {len(right)}")
    for one, other in zip(found, right, strict=True):
        if is_tensor(other) and other.layout != torch.strided:
            one, other = one.to_dense(), other.to_dense()
        # CUDA keeps statistics of narrow types in float32, the CPU in their own type.
        if isinstance(other, (torch.Tensor, int, float, complex)):
            try:
                torch.testing.assert_close(one, other, **limits, equal_nan=True, check_dtype=False, check_stride=False)
            except AssertionError as error:
                raise Differs(str(error).replace("\n", " ")[:120]) from None


def is_alike(found, right, limits):
    try:
        compare(found, right, limits)
    except Differs:
        return False
    return True


class Found:
    def __init__(self):
        self.equal = set()
        self.drawn = set()  # random, as it should be
        self.differing = {}

    def sample(self, operator, sample, dtype, with_gradient):
        """True: compared. An operator that the CPU does not compute is not compared."""
        limits = bounds(operator, dtype)
        try:
            right = run(operator, sample, "cpu", 1, with_gradient)
        except Exception:
            return False
        found = run(operator, sample, "cuda", 1, with_gradient)
        if operator.name.startswith(("empty", "new_empty")):
            right = found = [list(one.shape) == list(other.shape) for one, other in zip(found, right, strict=True)]
            if not all(found):
                raise Differs("the sizes")
        try:
            compare(found, right, limits)
        except Differs:
            if is_alike(run(operator, sample, "cpu", 2, with_gradient), right, limits):
                raise
            self.draws(operator, sample, found, with_gradient, limits)
        return True

    def draws(self, operator, sample, found, with_gradient, limits):
        """The CPU's values depend on the seed; so do these, and on nothing else."""
        if not is_alike(run(operator, sample, "cuda", 1, with_gradient), found, limits):
            raise Differs("the same seed gives other values")
        others = (run(operator, sample, "cuda", seed, with_gradient) for seed in range(2, 8))
        if all(is_alike(other, found, limits) for other in others):
            raise Differs("other seeds give the same values")
        self.drawn.add(operator.full_name)

    def check(self, operator, dtype):
        devices = ("cpu", "cuda")
        if not all(dtype in operator.supported_dtypes(device) for device in devices):
            return
        backward = operator.supports_autograd and all(dtype in operator.supported_backward_dtypes(device) for device in devices)
        key = (operator.full_name, str(dtype).removeprefix("torch."))
        compared = 0
        try:
            for number, sample in enumerate(operator.sample_inputs("cpu", dtype, requires_grad=backward)):
                if number == SAMPLES:
                    break
                compared += self.sample(operator, sample, dtype, backward)
        except Exception as error:
            self.differing[key] = f"{type(error).__name__}: {error}".split("\n")[0][:150]
        else:
            if compared:
                self.equal.add(key)


def listed():
    rows = (line.split(None, 2) for line in LIST.read_text().splitlines() if line and not line.startswith("#"))
    return {(name, dtype): reason for name, dtype, reason in rows}


class Operators(unittest.TestCase):
    def test_values_of_the_database(self):
        found = Found()
        for operator in op_db:
            for dtype in TYPES:
                found.check(operator, dtype)
        self.maxDiff = None
        known = listed()
        total = len(found.equal) + len(found.differing)
        print(f"{len(found.equal)} of {total} equal, {len(found.drawn)} random; unknown: {_values.unknown()}")
        new = {key: why for key, why in found.differing.items() if key not in known}
        lines = "\n".join(" ".join((*key, why)) for key, why in new.items())
        self.assertFalse(new, f"not in values_operators.txt, and differ:\n{lines}")
        self.assertEqual([key for key in known if key in found.equal], [], "are equal: take them out of values_operators.txt")
        self.assertGreaterEqual(len(found.equal), SHARE * total)

    def test_distributions(self):
        """Mean and spread."""
        count = 40_000
        ones = torch.ones(count, device="cuda")
        dropped = torch.nn.functional.dropout(ones, 0.25)
        for name, drawn, mean, spread in (
            ("rand", torch.rand(count, device="cuda"), 0.5, math.sqrt(1 / 12)),
            ("randn", torch.randn(count, device="cuda"), 0, 1),
            ("randint", torch.randint(0, 10, (count,), device="cuda"), 4.5, math.sqrt(99 / 12)),
            ("normal", torch.normal(3 * ones, 2.0), 3, 2),
            ("bernoulli", torch.bernoulli(0.3 * ones), 0.3, math.sqrt(0.21)),
            ("poisson", torch.poisson(4 * ones), 4, 2),
            ("exponential_", ones.clone().exponential_(2), 0.5, 0.5),
            ("geometric_", ones.clone().geometric_(0.5), 2, math.sqrt(2)),
            ("log_normal_", ones.clone().log_normal_(0, 0.25), math.exp(1 / 32), math.exp(1 / 32) * math.sqrt(math.expm1(1 / 16))),
            ("dropout", dropped, 1, math.sqrt(1 / 3)),
            ("randperm", torch.randperm(count, device="cuda"), (count - 1) / 2, math.sqrt((count**2 - 1) / 12)),
            ("multinomial", torch.multinomial(torch.tensor([1.0, 2.0, 1.0], device="cuda"), count, True), 1, math.sqrt(0.5)),
        ):
            with self.subTest(name):
                error = spread / math.sqrt(count)
                self.assertLess(abs(drawn.double().mean().item() - mean), 5 * error)
                self.assertLess(abs(drawn.double().std().item() / spread - 1), 0.05)
                self.assertTrue(drawn.is_cuda)


if __name__ == "__main__":
    if sys.argv[1:]:
        found = Found()
        for operator in op_db:
            for dtype in TYPES if operator.full_name in sys.argv[1:] or operator.name in sys.argv[1:] else ():
                found.check(operator, dtype)
        print(found.equal, found.drawn, found.differing)
        print(_values.unknown())
    else:
        unittest.main(warnings="ignore")
