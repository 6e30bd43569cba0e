"""A stand-in for PyTorch in the launcher's tests: its module layout, its lazy initialisation and its counters, over an
imaginary device of 1 GiB. FAKE_TORCH_UUID: the device's. FAKE_TORCH_BARE=1: without the out-of-memory observer."""

import os

__version__ = "0.0-fake"


class OutOfMemoryError(RuntimeError):
    pass


class Tensor:
    pass


def is_tensor(value):
    return isinstance(value, Tensor)


class version:
    cuda = "13.0"


class _Observers:
    found = []


class _C:
    @staticmethod
    def _cuda_clearCublasWorkspaces():
        from torch import cuda

        cuda.workspaces_cleared += 1

    @staticmethod
    def _cuda_setMemoryFraction(fraction, index):
        from torch import cuda

        cuda._set_fraction(fraction, index)


if os.environ.get("FAKE_TORCH_BARE") != "1":
    _C._cuda_attach_out_of_memory_observer = staticmethod(_Observers.found.append)

from torch import cuda, optim  # noqa: E402,F401
