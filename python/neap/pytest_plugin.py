"""The pytest marker gpu_memory: fails a test that held more device memory at once than it may, or that keeps some.

    @pytest.mark.gpu_memory(max_peak="2 GiB", max_growth=0)
    def test_step(): ...

Counted is what PyTorch's and neap's allocators of this process held over what they held before the test, over all devices:
max_peak bounds the most of it, max_growth what is left after the test has returned and Python has collected its garbage. Where the
test used no device there is nothing to count; on neap's simulator (`neap sim env`) no GPU is needed. Comes with the installed
package; else `-p neap.pytest_plugin`.
"""

from __future__ import annotations

import gc
from collections.abc import Generator
from typing import Any

import pytest

from . import _sources, _units, memory

_BOUNDS = ("max_peak", "max_growth")


def pytest_configure(config: pytest.Config) -> None:
    """Pytest's."""
    config.addinivalue_line(
        "markers",
        "gpu_memory(max_peak, max_growth): fails the test if it holds more device memory at once ('2 GiB'), or keeps more",
    )


def _bounds(item: pytest.Item) -> dict[str, int] | None:
    """The marker's arguments in bytes."""
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
    """Pytest's."""
    bounds = _bounds(item)
    if bounds is None:
        return (yield)
    memory.clear()
    memory.reset_peak_memory_stats()
    _sources.closed_peak(begin_anew=True)
    before = memory.get_gpu_memory_stats().allocated
    result = yield
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
