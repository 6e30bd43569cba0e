"""Runs pytest without a GPU, and bounds a test's memory.

    pytest --neap-gpu=2xh100-80gb tests        every test finds two simulated H100 GPUs, with true values

    @pytest.mark.gpu_memory(max_peak="2 GiB", max_growth=0)
    def test_step(): ...

--neap-gpu has the form of NEAP_SIM (`neap help sim`); values=full is the default here. It acts before conftest files are loaded, in
pytest's process and in each worker of pytest-xdist, which has its own devices. The summary at the end lists operations that were
not computed, and so does the report of a test that failed near such a value.

@pytest.mark.gpu_streams fails a test in which streams use memory too late or at once (`neap check --streams`).

gpu_memory fails a test that held more device memory at once than it may, or that keeps some. It counts the bytes of PyTorch's and
neap's allocators of this process, over all devices, above their level before the test: max_peak bounds the highest, max_growth
those left after the test has returned and Python has collected its garbage. If the test used no device, there is nothing to count.
The plug-in comes with the installed package; else use `-p neap.pytest_plugin`.
"""

from __future__ import annotations

import ctypes
import gc
import importlib.util
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Generator, Iterator
from typing import Any

import pytest

from . import _races, _simulator, _sources, _units, _values, memory

_BOUNDS = ("max_peak", "max_growth")
_LINE = 160
_FIRST = 'type this first, in the same shell: eval "$(neap sim env)"'
_HERE = pathlib.Path(__file__).resolve().parent


def pytest_addoption(parser: pytest.Parser) -> None:
    """Called by pytest."""
    parser.getgroup("neap").addoption(
        "--neap-gpu",
        metavar="SPEC",
        help="run the tests on simulated GPUs, also where there is a real one: h100-80gb, 2xa100-40gb, mem=6GiB,gpus=2 (neap help sim)",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Called by pytest."""
    config.addinivalue_line(
        "markers",
        "gpu_memory(max_peak, max_growth): fails the test if it holds more device memory at once ('2 GiB'), or keeps more",
    )
    config.addinivalue_line("markers", "gpu_streams: fails the test where streams use memory too late or at once; needs --neap-gpu")
    _simulate(config, config.getoption("neap_gpu", None))  # if a conftest file names the plug-in


# Devices.


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    """Called by pytest."""
    _simulate(early_config, early_config.known_args_namespace.neap_gpu)


def _simulate(config: pytest.Config, spec: str | None) -> None:
    """Makes every later `import torch`, in this process and its children, find these devices. Raises UsageError."""
    if spec is None or getattr(config, "_neap_header", None):
        return
    words = [spec]
    if not any(word.startswith(("values=", "backing=")) for word in spec.split(",")):
        words.append("values=full")
    if not any(word.startswith("world=") for word in spec.split(",")):
        worker = os.environ.get("PYTEST_XDIST_WORKER")
        own = f"pytest-{os.getppid()}-{worker}" if worker else f"pytest-{os.getpid()}"
        words += [f"world={own}", "release_delay=0s"]  # parallel runs do not share devices
    wanted = ",".join(words)
    try:
        simulator, runtime = _simulator.folders()
        _refuse_late(wanted)
        name, count = _devices(simulator, spec, wanted)
        os.environ.update(NEAP_DEVICE="sim", NEAP_SIM=wanted, NEAP_SIM_PATH=simulator, NEAP_SIM_RUNTIME=runtime)
        os.environ.pop("CUDA_VISIBLE_DEVICES", None)  # it names real devices
        os.environ.setdefault("PYTORCH_TENSOREXPR_FALLBACK", "2")  # TorchScript fuses no kernels, which nobody could compute
        _launch(simulator)
    except _simulator.NotSimulated as error:
        raise pytest.UsageError(f"--neap-gpu: {error}") from None
    config._neap_header = f"neap: simulated {name} \N{MULTIPLICATION SIGN}{count}, values {_values.asked()}"  # type: ignore[attr-defined]
    config.add_cleanup(_drop_worlds)
    if not os.environ.get("NEAP_RUN_DIR"):
        folder = os.environ["NEAP_RUN_DIR"] = tempfile.mkdtemp(prefix="neap-pytest-")
        config.add_cleanup(lambda: _drop_folder(folder))


def _drop_folder(folder: str) -> None:
    os.environ.pop("NEAP_RUN_DIR", None)
    shutil.rmtree(folder, ignore_errors=True)


def _drop_worlds() -> None:
    """Removes worlds that are left: a process that leaves its world removes the file, but pytest-xdist kills its workers."""
    for end in (f"pytest-{os.getpid()}", f"pytest-{os.getpid()}-gw*"):
        for path in [path for folder in ("/dev/shm", "/tmp") for path in pathlib.Path(folder).glob(f"neap-sim-{os.geteuid()}-{end}")]:
            path.unlink(missing_ok=True)


def _refuse_late(wanted: str) -> None:
    """Raises NotSimulated if it is too late for this process."""
    torch = sys.modules.get("torch")
    launched = _is_launched()
    if launched and os.environ.get("NEAP_DEVICE") != "sim":
        raise _simulator.NotSimulated("`neap run` attached this process to no simulator: type NEAP_DEVICE=sim before it")
    if torch is not None and not launched:
        raise _simulator.NotSimulated(f"PyTorch was imported before pytest could start the simulator: {_FIRST}")
    if torch is not None and torch.cuda.is_initialized() and os.environ.get("NEAP_SIM") != wanted:
        raise _simulator.NotSimulated("this process has used other simulated devices: run pytest in a process of its own")


def _is_launched() -> bool:
    return any(getattr(finder, "neap_launch", None) for finder in sys.meta_path)


def _devices(simulator: str, spec: str, wanted: str) -> tuple[str, int]:
    """Returns the name and the number of the devices. Raises UsageError if `spec` describes none."""
    before = os.environ.get("NEAP_SIM")
    nvml: Any = ctypes.CDLL(os.path.join(simulator, "libnvidia-ml.so.1"), mode=ctypes.RTLD_GLOBAL)
    nvml.nvmlErrorString.restype = ctypes.c_char_p
    try:
        os.environ["NEAP_SIM"] = wanted
        status = nvml.nvmlInit_v2() if spec else 2
        if status:
            why = nvml.nvmlErrorString(status).decode("utf-8", "replace").removeprefix("NEAP_SIM: ") if spec else "nothing is named"
            raise pytest.UsageError(f"--neap-gpu={spec}: {why}{_profiles()}")
    except ValueError as error:
        raise pytest.UsageError(f"--neap-gpu={spec!r}: {error}") from None
    finally:
        os.environ.pop("NEAP_SIM", None)
        os.environ.update({} if before is None else {"NEAP_SIM": before})
    count = ctypes.c_uint()
    device = ctypes.c_void_p()
    name = ctypes.create_string_buffer(96)
    nvml.nvmlDeviceGetCount_v2(ctypes.byref(count))
    nvml.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(device))
    nvml.nvmlDeviceGetName(device, name, len(name))
    nvml.nvmlShutdown()
    return name.value.decode("utf-8", "replace"), count.value


def _profiles() -> str:
    """Returns the profiles as the command lists them; "" without the command."""
    command = _command()
    if command is None:
        return ""
    done = subprocess.run([command, "sim", "profiles"], capture_output=True, text=True)
    names = [line.split()[0] for line in done.stdout.split("\n\n")[0].splitlines()[1:]]
    return f"; profiles: {', '.join(names)}" if names else ""


def _command() -> str | pathlib.Path | None:
    beside = [_HERE / "neap", _HERE.parents[1] / "src" / "neap", *(folder / "bin" / "neap" for folder in _HERE.parents[2:4])]
    return next((path for path in beside if path.is_file()), None) or shutil.which("neap")


def _launch(simulator: str) -> None:
    """Does in this process what the environment of `neap sim env` does at a process's start. Raises NotSimulated."""
    folder = next(path for path in (_HERE / "launch", _HERE.parent / "launch") if (path / "sitecustomize.py").is_file())
    after = [part for part in os.environ.get("PYTHONPATH", "").split(os.pathsep) if part and part != str(folder)]
    os.environ["PYTHONPATH"] = os.pathsep.join([str(folder), *after])
    ctypes.CDLL(os.path.join(simulator, "libcuda.so.1"), mode=ctypes.RTLD_GLOBAL)  # for programs without PyTorch
    torch = importlib.util.find_spec("torch")
    if torch is not None and torch.origin:
        _simulator.load()  # load now, while an error can still be shown: without a device, tests would skip
    if not _is_launched():
        sys.path.insert(0, str(folder))  # PyTorch's compile workers give their children sys.path for PYTHONPATH
        spec = importlib.util.spec_from_file_location("_neap_launch", folder / "sitecustomize.py")
        assert spec is not None and spec.loader is not None
        spec.loader.exec_module(importlib.util.module_from_spec(spec))


def pytest_report_header(config: pytest.Config) -> str | None:
    """Called by pytest."""
    return getattr(config, "_neap_header", None)


# Values that were not computed.


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup() -> None:
    """Called by pytest."""
    _values.step()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(call: pytest.CallInfo[None]) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Called by pytest."""
    report = yield
    if report.failed and call.excinfo is not None and _values.is_on():
        lines = sorted({*_not_computed(call.excinfo.tb), *_unknown(), *_left(f"simulated.{os.getpid()}")})
        if lines:
            report.sections.append(("neap: not computed by the simulator", "\n".join(lines)))
    return report


def _not_computed(at: Any) -> Iterator[str]:
    """Yields variables whose values were not computed, in the frames of a failed test."""
    Tensor = sys.modules["torch"].Tensor
    kinds = (Tensor, sys.modules["torch"].nn.Parameter)  # a subclass may do anything when it is asked
    while at is not None:
        for name, value in at.tb_frame.f_locals.items():
            if type(value) in kinds and value.layout is sys.modules["torch"].strided and not _values.known(value):
                file = os.path.basename(at.tb_frame.f_code.co_filename)
                yield f"{'a value' if name[0] == '@' else name} of {at.tb_frame.f_code.co_name} ({file}:{at.tb_lineno}), {value.device}"
        at = at.tb_next


def _unknown() -> list[str]:
    """Returns the operations that were not computed in this process, and why."""
    if "torch" in sys.modules and _values.asked() != "none" and not _values.is_loaded():
        return ['everything: no C++ compiler? Type: eval "$(neap sim env)"; python -c "import torch"']
    return [f"{name}: {why}"[:_LINE] for name, why in _values.unknown()]


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Called by pytest."""
    folder = os.environ.get("NEAP_RUN_DIR")
    if folder and getattr(session.config, "_neap_header", None) and _unknown():
        pathlib.Path(folder, f"values.{os.getpid()}").write_text("\n".join(_unknown()), encoding="utf-8")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Called by pytest."""
    if not getattr(config, "_neap_header", None):
        return
    lines = sorted({*_left("simulated.*[0-9]"), *_left("values.*")})
    if lines:
        terminalreporter.section("neap: not computed by the simulator")
        for line in lines:
            terminalreporter.line(line)
        terminalreporter.line("A test that passed although it used one of these did not test its values.")


def _left(pattern: str) -> Iterator[str]:
    """Yields the findings that processes of this run left in its folder: operations (values.PID), kernels and calls of libraries
    (sim/runtime/tally.c)."""
    words = {"kernel": "launched as nothing", "values": "wrote no values", "refused": "not supported"}
    for path in pathlib.Path(os.environ.get("NEAP_RUN_DIR", "/")).glob(pattern):
        for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
            gap, library, function = [*line.split(), "", "", ""][:3]
            if path.name.startswith("values."):
                yield line
            elif gap in words:
                yield f"{library} {function}: {words[gap]}"


# Streams.


def pytest_collection_finish(session: pytest.Session) -> None:
    """Called by pytest before a test has used CUDA."""
    if getattr(session.config, "_neap_header", None) and any(item.get_closest_marker("gpu_streams") for item in session.items):
        os.environ["NEAP_STREAMS"] = "1"


def _call_with_streams(item: pytest.Item) -> Generator[None, Any, Any]:
    """Makes the call within pytest_runtest_call; fails it if gpu_streams is requested and finds something."""
    if item.get_closest_marker("gpu_streams") is None:
        return (yield)
    if not getattr(item.config, "_neap_header", None):
        pytest.skip("gpu_streams: races are found on the simulator alone, with --neap-gpu")
    _races.again()
    result = yield
    gc.collect()
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized() and not _races.is_on():
        pytest.fail("gpu_streams: nothing was seen: CUDA was used before the tests, or there is no C++ compiler", pytrace=False)
    with tempfile.TemporaryDirectory(prefix="neap-races-") as folder:
        if _races.copy(folder):
            pytest.fail(_report(folder), pytrace=False)
    return result


def _report(folder: str) -> str:
    """Returns the command's text about the races in the folder."""
    command = _command()
    if command is None:
        return "streams use memory too late or at once"
    done = subprocess.run([command, "check", "--streams", folder], capture_output=True, text=True)
    return done.stdout


# Memory.


def _bounds(item: pytest.Item) -> dict[str, int] | None:
    """Returns the marker's arguments in bytes."""
    marker = item.get_closest_marker("gpu_memory")
    if marker is None:
        return None
    if marker.args or not marker.kwargs or not set(marker.kwargs) <= set(_BOUNDS):
        raise pytest.UsageError(f"{item.nodeid}: gpu_memory takes max_peak='2 GiB', max_growth=0, or both")
    try:
        return {name: _units.parse_size(size) for name, size in marker.kwargs.items()}
    except (ValueError, TypeError) as error:
        raise pytest.UsageError(f"{item.nodeid}: gpu_memory: {error}") from None


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, Any, Any]:
    """Called by pytest."""
    bounds = _bounds(item)
    if bounds is None:
        return (yield from _call_with_streams(item))
    memory.clear()
    memory.reset_peak_memory_stats()
    _sources.closed_peak(begin_anew=True)
    before = memory.get_gpu_memory_stats().allocated
    result = yield from _call_with_streams(item)
    gc.collect()
    after = memory.get_gpu_memory_stats()
    measured = {"max_peak": after.max_allocated + _sources.closed_peak() - before, "max_growth": after.allocated - before}
    words = {"max_peak": "held {} of device memory at once", "max_growth": "keeps {} of device memory"}
    over = [
        f"{words[name].format(_units.size(measured[name]))}, over its limit of {_units.size(limit)}"
        for name, limit in bounds.items()
        if measured[name] > limit
    ]
    if over:
        pytest.fail("; ".join(over), pytrace=False)
    return result
