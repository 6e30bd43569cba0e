"""What documents.py needs to know about each document. Lines are given by their beginnings."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True)
class Document:
    """The entries of one document."""

    not_run: dict[str, str] = dataclasses.field(default_factory=dict)  # command: why not
    torch: tuple[str, ...] = ()  # commands that need PyTorch
    fails: tuple[str, ...] = ()  # commands whose exit status is not 0
    before: dict[str, str] = dataclasses.field(default_factory=dict)  # command: what the page assumes
    output: tuple[str, ...] = ()  # first lines of blocks that show output or text, without a command
    pid: str = ""  # of the training in the background, as the page shows it


_MEASURES = "measures for minutes"
_INSTALLS = "installs: tests/packaging.sh and tests/cli/install.bats do, in a folder of their own"
_SETS_UP = "sets the machine up, and builds"
_SAMPLE = "stands for the reader's own program"
_SERVES = "serves until it is interrupted: tests/cli/serve.py runs it, and asks it"
_INTEGRATIONS = "tests/python/test_integrations.py runs it"

_TRAINING = """\
export PATH=$PWD/build/examples/charlm:$PATH
export NEAP_DEVICE=sim NEAP_SIM=mem=96MiB,context=8MiB,reserved=2MiB
neap run -- charlm --steps 100000 --log-every 0 >training 2>&1 &
until neap info --oneline 2>training | grep -q charlm; do sleep 0.1; done"""

TABLE = {
    "README.md": Document(
        not_run={
            "./run ": _SETS_UP,
            "./test ": _SETS_UP,
            "neap estimate --gpu h100": "tests/python/test_estimate.py runs it",
            "neap estimate --model": "asks the Hub for the config: docs/estimate.md has one in a folder",
            **dict.fromkeys(("meson install", "python3 -m venv", "ninja -C build uninstall", "packaging/", "cc use.c"), _INSTALLS),
        },
    ),
    "docs/tour.md": Document(
        output=("NAME   ",),
        pid="5101",
    ),
    "docs/accuracy.md": Document(
        not_run=dict.fromkeys(
            ("build/bench/bench_leak", "bench/", "for seed in"),
            _MEASURES,
        ),
    ),
    "docs/allocator.md": Document(
        not_run=dict.fromkeys(("neap run --allocator",), _SAMPLE),
        output=("import neap",),
    ),
    "docs/c.md": Document(
        not_run=dict.fromkeys(("meson install", "cc use.c"), "tests/cli/install.bats runs them in a folder of its own"),
    ),
    "docs/ci.md": Document(
        torch=("neap check --streams", "neap check", "cat >test_scale.py", "pytest"),
        fails=("neap check --streams --",),
        before={"pytest": "export PYTHONPATH=$PWD/build/python PYTEST_PLUGINS=neap.pytest_plugin"},
    ),
    "docs/estimate.md": Document(torch=("neap estimate", "NEAP_SIM=values_memory")),
    "docs/processes.md": Document(
        pid="8537",
        fails=("kill -STOP",),
        output=("GPU 1: Simulated", "neap run: charlm: killed"),
    ),
    "docs/python.md": Document(
        not_run={
            "neap run -- python train.py": _SAMPLE,
            "neap run --param batch=64": _SAMPLE,
            "NEAP_DEVICE=sim NEAP_SIM=h100-80gb neap run --max-steps 3": _SAMPLE,
            "NEAP_DEVICE=sim NEAP_SIM=8xa100-80gb": _SAMPLE,
            "NEAP_DEVICE=sim NEAP_SIM=mem=2GiB PYTHONPATH=build/python neap run -- python examples/with_lightning.py": _INTEGRATIONS,
            "NEAP_DEVICE=sim NEAP_SIM=mem=1GiB PYTHONPATH=build/python neap run -- python examples/with_transformers.py": _INTEGRATIONS,
        },
        torch=("NEAP_DEVICE=sim NEAP_SIM=mem=2GiB neap run -- python train.py",),
        output=("  outside", "4.00 MiB float32", "plan = neap.", "forward = neap.", "memory-efficient attention: 2.15", "<LoadedCheckpoint"),
    ),
    "docs/runs.md": Document(
        not_run={
            "neap run --param batch=64": _SAMPLE,
            "neap run --clear-memory-on-start": "tests/live/leftovers.bats runs it after a supervisor was killed",
        },
        torch=("NEAP_SIM=rtx4060-8gb,backing=none neap run --estimate=refuse",),
        fails=(
            "neap run --quiet --log --folder f",
            "neap run -- charlm --steps 150 --batch 8 --layers 1 --width 32 --context 16 --leak-per-step 512KiB \\\n      --device-warn",
            "neap run --max-device 30MiB",
        ),
        before={"for id in one two three": "export XDG_STATE_HOME=$PWD/example"},
    ),
    "docs/see.md": Document(
        not_run={"neap serve": _SERVES, "curl ": _SERVES},
        output=("neap top  ", "      PID ", "scrape_configs:"),
        before={"neap top --once": _TRAINING},
    ),
    "docs/series.md": Document(
        not_run=dict.fromkeys(("neap series examples/series.yaml --slurm", "until neap series"), "needs Slurm: tests/slurm runs it"),
        torch=("NEAP_SIM=rtx4090-24gb,backing=none neap series nights.yaml",),
        fails=(
            "neap series shell.yaml --dry-run",
            "neap series rates.yaml --folder rates --quiet",
            "neap series night.yaml --folder night --quiet",
        ),
    ),
    "docs/speed.md": Document(
        not_run={
            "chrt -f 5 build/bench/bench_checkpoints": _MEASURES,
            "NEAP_LONG=1 tests/browser/first_paint.py": "./test --long runs it",
            "bench/": _MEASURES,
        },
    ),
    "sim/README.md": Document(
        torch=("NEAP_SIM=h100-80gb python", "NEAP_SIM=8xa100-80gb python"),
        before={"cc hello.c": "sed -n '/^```c$/,/^```$/{/^```/d;p}' examples/../sim/README.md >hello.c"},
        output=("  libraries ──>",),
    ),
    "docs/traces.md": Document(
        pid="4805",
        before={"neap explain --pid 4805": _TRAINING},
        output=("Out of device memory:",),
    ),
}
