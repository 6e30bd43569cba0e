"""The pytest marker neap_limit: fails a test that held more device memory at once than it may.

    @pytest.mark.neap_limit("2 GiB")
    def test_step(): ...

Counted is what PyTorch's and neap's allocators of this process held over what they held before the test, over all devices.
Where the test used no device there is nothing to count. Comes with the installed package; else `-p neap.pytest_plugin`.
"""

from __future__ import annotations

from typing import Any, Generator

import pytest

from . import _sources, _units, memory


def pytest_configure(config: pytest.Config) -> None:
    """Pytest's."""
    config.addinivalue_line("markers", "neap_limit(size): fails the test if it holds more device memory at once ('2 GiB')")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, Any, Any]:
    """Pytest's."""
    marker = item.get_closest_marker("neap_limit")
    if marker is None:
        return (yield)
    if len(marker.args) != 1 or marker.kwargs:
        raise pytest.UsageError(f"{item.nodeid}: neap_limit takes one size, such as '2 GiB'")
    try:
        limit = _units.parse_size(marker.args[0])
    except (ValueError, TypeError) as error:
        raise pytest.UsageError(f"{item.nodeid}: neap_limit: {error}") from None
    memory.clear()
    memory.reset_peak_memory_stats()
    _sources.closed_peak(begin_anew=True)
    before = memory.get_gpu_memory_stats().allocated
    result = yield
    peak = memory.get_gpu_memory_stats().max_allocated + _sources.closed_peak() - before
    if peak > limit:
        pytest.fail(f"held {_units.size(peak)} of device memory at once, over its limit of {_units.size(limit)}", pytrace=False)
    return result
