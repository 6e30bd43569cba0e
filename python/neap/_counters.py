"""The names of an allocator's counters (struct neap_stats), as PyTorch has them."""

from . import _abi

METRICS = tuple(metric.name.lower() for metric in _abi.Metric if metric is not _abi.Metric.COUNT)
POOLS = ("all", "large_pool", "small_pool")  # in the order of enum neap_pool_class
VALUES = tuple(name for name, *_ in _abi.Stat._fields_)
