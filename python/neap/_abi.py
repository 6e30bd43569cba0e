"""libneap's declarations, mirrored for ctypes: data only.

Every struct, enum and prototype here is one of include/neap/*.h, under the same name. tests/python/test_abi.py compares
each with the headers as the C compiler sees them: sizes, offsets, values and argument types.
"""

from __future__ import annotations

import ctypes as c
import enum
from typing import Any, ClassVar

# enum neap_status


class Status(enum.IntEnum):
    """enum neap_status: how a call of libneap ended."""

    OK = 0
    EINVAL = 1
    ENOMEM = 2
    EOOM = 3
    ENODEVICE = 4
    EDRIVER = 5
    ENOTSUP = 6
    EIO = 7
    ENOSPC = 8
    ENOENT = 9
    EPERM = 10
    EPARSE = 11
    EPROTO = 12
    EBUSY = 13
    ETIMEDOUT = 14
    ESTATE = 15
    EEXIST = 16
    ECANCELED = 17
    EINTERNAL = 18


class BlockState(enum.IntEnum):
    """enum neap_block_state"""

    LIVE = 0
    PENDING = 1
    CACHED = 2
    UNMAPPED = 3


class Rung(enum.IntEnum):
    """enum neap_rung: a step down the ladder."""

    NONE = 0
    SPLIT = 1
    EFFICIENT_ATTENTION = 2
    MIXED_PRECISION = 3
    CHECKPOINTING = 4
    STOP = 5


class Mark(enum.IntEnum):
    """enum neap_mark: a milestone of a training."""

    START = 1
    MODEL_READY = 2
    OPTIMIZER_READY = 3
    EPOCH_END = 4
    EVERY_N = 5
    SAVED = 6
    OOM = 7
    END = 8
    EVALUATION = 9
    FAILED = 10
    USER = 100


class Reason(enum.IntEnum):
    """enum neap_cleanup_reason: why a cleanup ran."""

    START = 0
    END = 1
    FAILURE = 2
    SAVED = 3
    EPOCH = 4
    EVERY_STEP = 5
    PERIODIC = 6
    OOM = 7
    REQUEST = 8
    LOW = 9
    LEAK = 10


class ThresholdAct(enum.IntEnum):
    """enum neap_threshold_act: what is done about little memory."""

    NOTHING = 0
    WARN = 1
    DEGRADE = 2
    STOP = 3


class LeakVerdict(enum.IntEnum):
    """enum neap_leak_verdict: whether memory grows with the steps."""

    TOO_SHORT = 0
    CLEAN = 1
    FOUND = 2


class EventKind(enum.IntEnum):
    """Of enum neap_event_kind, those a training emits."""

    OOM = 21
    OOM_LIMITS = 22
    TAG_BYTES = 23
    MARK = 24
    STEP = 25
    SPLIT = 26
    CLEANUP = 27
    RUNG = 28
    METRIC = 31
    LEAK = 32
    OOM_POOLS = 34
    FORECAST = 41
    REQUEST = 42
    PROCESS = 44
    PAGE = 45


class Role(enum.IntEnum):
    """enum neap_process_role: what a process is in its run."""

    PLAIN = 0
    RANK = 1
    WORKER = 2


class ExternalKind(enum.IntEnum):
    """enum neap_external_kind: what another allocator in the process is asked for."""

    INFO = 1
    CLEAR = 2
    RESET_PEAK = 3
    FRACTION = 4
    RELEASE = 5


class MetricMode(enum.IntEnum):
    """enum neap_metric_mode: which way is better."""

    MODE_UNKNOWN = 0
    MIN = 1
    MAX = 2


class RetentionDone(enum.IntEnum):
    """enum neap_retention_done: what became of a checkpoint."""

    NOTHING = 0
    MOVED = 1
    GONE = 2
    CHANGED = 3
    FAILED = 4


class CheckpointFact(enum.IntEnum):
    """enum neap_checkpoint_fact; the package asks only for this one."""

    RECORDED = 1 << 12


ENUMS = {
    "NEAP_METRIC_": MetricMode,
    "NEAP_RETENTION_": RetentionDone,
    "NEAP_CHECKPOINT_": CheckpointFact,
    "NEAP_": Status,
    "NEAP_RUNG_": Rung,
    "NEAP_MARK_": Mark,
    "NEAP_CLEANUP_": Reason,
    "NEAP_EVENT_": EventKind,
    "NEAP_PROCESS_": Role,
    "NEAP_EXTERNAL_": ExternalKind,
    "NEAP_THRESHOLD_": ThresholdAct,
    "NEAP_LEAK_": LeakVerdict,
    "NEAP_BLOCK_": BlockState,
}

SUMMARY_ROOM = 8192  # NEAP_SUMMARY_ROOM
OOM_OTHER = 1
OOM_GROWS = 2  # NEAP_OOM_OTHER, NEAP_OOM_GROWS

METRICS = (
    "allocation",
    "segment",
    "active",
    "inactive_split",
    "allocated_bytes",
    "reserved_bytes",
    "active_bytes",
    "inactive_split_bytes",
    "requested_bytes",
)
POOLS = ("all", "large_pool", "small_pool")
VALUES = ("current", "peak", "allocated", "freed")


class Error(c.Structure):
    """struct neap_error"""

    _fields_ = [
        ("status", c.c_int),
        ("cause", c.c_int),
        ("line", c.c_uint32),
        ("column", c.c_uint32),
        ("position", c.c_uint64),
        ("message", c.c_char * 256),
    ]


class Stat(c.Structure):
    """struct neap_stat"""

    _fields_ = [(name, c.c_int64) for name in VALUES]


class Stats(c.Structure):
    """struct neap_stats"""

    _fields_ = [
        ("metric", (Stat * len(POOLS)) * len(METRICS)),
        ("oversize_allocations", Stat),
        ("oversize_segments", Stat),
        ("num_alloc_retries", c.c_int64),
        ("num_ooms", c.c_int64),
        ("max_split_size", c.c_int64),
        ("num_sync_all_streams", c.c_int64),
        ("num_device_alloc", c.c_int64),
        ("num_device_free", c.c_int64),
    ]


class BlockInfo(c.Structure):
    """struct neap_block_info"""

    _fields_ = [
        ("segment_address", c.c_uint64),
        ("segment_bytes", c.c_uint64),
        ("address", c.c_uint64),
        ("bytes", c.c_uint64),
        ("requested_bytes", c.c_uint64),
        ("tag", c.c_char_p),
        ("stream", c.c_void_p),
        ("state", c.c_int),
        ("small_pool", c.c_bool),
        ("serial", c.c_uint64),
        ("pool_high", c.c_uint64),
        ("pool_low", c.c_uint64),
    ]


class DeviceInfo(c.Structure):
    """struct neap_device_info"""

    _fields_ = [
        ("ordinal", c.c_int),
        ("uuid", c.c_ubyte * 16),
        ("uuid_text", c.c_char * 48),
        ("name", c.c_char * 96),
        ("pci_bus_id", c.c_char * 32),
        ("total_bytes", c.c_uint64),
        ("page_bytes", c.c_uint32),
        ("compute_major", c.c_int),
        ("compute_minor", c.c_int),
    ]


class AllocOptions(c.Structure):
    """struct neap_alloc_options"""

    _fields_ = [
        ("fraction", c.c_double),
        ("observer", c.c_void_p),
        ("published", c.c_void_p),
        ("shareable", c.c_bool),
        ("no_plan", c.c_bool),
    ]


class Split(c.Structure):
    """struct neap_split"""

    _fields_ = [
        ("micro_batch", c.c_uint64),
        ("accumulate", c.c_uint64),
        ("ranks", c.c_uint64),
        ("batch", c.c_uint64),
    ]


class TrainSettings(c.Structure):
    """struct neap_train_settings"""

    _fields_ = [("split", Split), ("rungs", c.c_uint32)]


class Leak(c.Structure):
    """struct neap_leak"""

    _fields_ = [
        ("verdict", c.c_int),
        ("bytes_per_step", c.c_double),
        ("low_bytes_per_step", c.c_double),
        ("high_bytes_per_step", c.c_double),
        ("confidence", c.c_double),
        ("warm_up_steps", c.c_size_t),
        ("steps", c.c_size_t),
        ("steps_until_full", c.c_uint64),
        ("low_steps_until_full", c.c_uint64),
        ("high_steps_until_full", c.c_uint64),
    ]


class DrainEnded(c.Structure):
    """struct neap_drain_ended"""

    _fields_ = [
        ("pids", c.POINTER(c.c_int)),
        ("pid_count", c.c_size_t),
        ("uuids", c.c_char_p),
        ("uuid_count", c.c_size_t),
        ("limit_ms", c.c_uint64),
    ]


class PublishedLane(c.Structure):
    """struct neap_published_lane"""

    _fields_ = [
        ("sequence", c.c_uint64),
        ("blocks_taken", c.c_uint64),
        ("bytes_taken", c.c_uint64),
        ("requested_taken", c.c_uint64),
        ("blocks_given", c.c_uint64),
        ("bytes_given", c.c_uint64),
        ("requested_given", c.c_uint64),
        ("unused", c.c_uint64),
    ]


class Published(c.Structure):
    """struct neap_published"""

    _fields_ = [
        ("sequence", c.c_uint64),
        ("device_uuid", c.c_ubyte * 16),
        ("context_bytes", c.c_uint64),
        ("limit_bytes", c.c_uint64),
        ("largest_free_bytes", c.c_uint64),
        ("stats", Stats),
        ("lanes", PublishedLane * 2 * 16),
    ]


class Held(c.Structure):
    """struct neap_event_held"""

    _fields_ = [("allocated_bytes", c.c_uint64), ("reserved_bytes", c.c_uint64)]


class EventSettings(c.Structure):
    """struct neap_event_settings"""

    _fields_ = [
        ("rungs", c.c_uint32),
        ("smaller_parts", c.c_uint32),
        ("micro_batch", c.c_uint64),
        ("accumulate", c.c_uint64),
    ]


class EventPayload(c.Structure):
    """What an event of one kind says: the structs of include/neap/event.h."""

    kind: ClassVar[EventKind]


class EventOom(EventPayload):
    """struct neap_event_oom"""

    kind = EventKind.OOM
    _fields_ = [
        ("held", Held),
        ("tag", c.c_uint32),
        ("flags", c.c_uint32),
        ("device_free_bytes", c.c_uint64),
        ("requested_bytes", c.c_uint64),
        ("bytes", c.c_uint64),
    ]


class EventOomLimits(EventPayload):
    """struct neap_event_oom_limits"""

    kind = EventKind.OOM_LIMITS
    _fields_ = [
        ("context_bytes", c.c_uint64),
        ("device_total_bytes", c.c_uint64),
        ("limit_bytes", c.c_uint64),
        ("largest_free_bytes", c.c_uint64),
        ("others_bytes", c.c_uint64),
        ("pending_bytes", c.c_uint64),
    ]


class EventOomPools(EventPayload):
    """struct neap_event_oom_pools"""

    kind = EventKind.OOM_POOLS
    _fields_ = [
        ("small_failed", c.c_uint64),
        ("small_largest_free_bytes", c.c_uint64),
        ("large_largest_free_bytes", c.c_uint64),
    ]


class EventTagBytes(EventPayload):
    """struct neap_event_tag_bytes"""

    kind = EventKind.TAG_BYTES
    _fields_ = [
        ("tag", c.c_uint64),
        ("live_blocks", c.c_uint64),
        ("live_bytes", c.c_uint64),
        ("peak_bytes", c.c_uint64),
    ]


class EventMark(EventPayload):
    """struct neap_event_mark"""

    kind = EventKind.MARK
    _fields_ = [
        ("held", Held),
        ("name", c.c_uint32),
        ("mark", c.c_uint32),
        ("value", c.c_uint64),
    ]


class EventStep(EventPayload):
    """struct neap_event_step"""

    kind = EventKind.STEP
    _fields_ = [
        ("held", Held),
        ("name", c.c_uint32),
        ("micro_batches", c.c_uint32),
        ("number", c.c_uint64),
        ("peak_bytes", c.c_uint64),
        ("lowest_bytes", c.c_uint64),
    ]


class EventSplit(EventPayload):
    """struct neap_event_split"""

    kind = EventKind.SPLIT
    _fields_ = [
        ("held", Held),
        ("settings", EventSettings),
        ("ranks", c.c_uint32),
        ("layers", c.c_uint32),
    ]


class EventRung(EventPayload):
    """struct neap_event_rung"""

    kind = EventKind.RUNG
    _fields_ = [
        ("settings", EventSettings),
        ("rung", c.c_uint64),
        ("micro_batch_before", c.c_uint64),
        ("accumulate_before", c.c_uint64),
    ]


class EventCleanup(EventPayload):
    """struct neap_event_cleanup"""

    kind = EventKind.CLEANUP
    _fields_ = [
        ("held", Held),
        ("ns", c.c_uint64),
        ("freed_bytes", c.c_uint64),
        ("reason", c.c_uint64),
    ]


class EventMetric(EventPayload):
    """struct neap_event_metric"""

    kind = EventKind.METRIC
    _fields_ = [
        ("held", Held),
        ("name", c.c_uint64),
        ("value", c.c_double),
        ("step", c.c_uint64),
    ]


class EventLeak(EventPayload):
    """struct neap_event_leak"""

    kind = EventKind.LEAK
    _fields_ = [
        ("held", Held),
        ("bytes_per_step", c.c_uint64),
        ("confidence_permille", c.c_uint64),
    ]


class EventForecast(EventPayload):
    """struct neap_event_forecast"""

    kind = EventKind.FORECAST
    _fields_ = [
        ("step", c.c_uint64),
        ("low_step", c.c_uint64),
        ("high_step", c.c_uint64),
    ]


class EventRequest(EventPayload):
    """struct neap_event_request"""

    kind = EventKind.REQUEST
    _fields_ = [
        ("name", c.c_uint32),
        ("request", c.c_uint32),
        ("left_bytes", c.c_uint64),
        ("threshold_bytes", c.c_uint64),
        ("low_step", c.c_uint64),
        ("high_step", c.c_uint64),
        ("max_steps", c.c_uint64),
    ]


class EventProcess(EventPayload):
    """struct neap_event_process"""

    kind = EventKind.PROCESS
    _fields_ = [
        ("device_uuid", c.c_uint32),
        ("role", c.c_uint32),
        ("rank", c.c_uint64),
        ("local_rank", c.c_uint64),
        ("ranks", c.c_uint64),
        ("parent", c.c_uint64),
    ]


class Event(c.Structure):
    """struct neap_event"""

    _fields_ = [
        ("time_ns", c.c_uint64),
        ("sequence", c.c_uint32),
        ("kind", c.c_uint16),
        ("device", c.c_uint16),
        ("payload", c.c_uint64 * 6),
    ]


class ExternalRequest(c.Structure):
    """struct neap_external_request"""

    _fields_ = [
        ("id", c.c_uint64),
        ("kind", c.c_uint32),
        ("force", c.c_uint32),
        ("fraction", c.c_double),
    ]


class DeviceAnswer(c.Structure):
    """struct neap_device_answer"""

    _fields_ = [
        ("uuid", c.c_ubyte * 16),
        ("status", c.c_uint64),
        ("ordinal", c.c_uint64),
        ("total", c.c_uint64),
        ("allocated", c.c_uint64),
        ("reserved", c.c_uint64),
        ("max_allocated", c.c_uint64),
        ("max_reserved", c.c_uint64),
        ("allocated_before", c.c_uint64),
        ("reserved_before", c.c_uint64),
        ("free_before", c.c_uint64),
        ("free", c.c_uint64),
        ("reserved_now", c.c_uint64),
        ("limit_before", c.c_uint64),
        ("limit", c.c_uint64),
        ("emptied", c.c_uint64),
        ("freed", c.c_uint64),
        ("nanoseconds", c.c_uint64),
        ("name", c.c_char * 96),
        ("message", c.c_char * 200),
    ]


class RetentionOptions(c.Structure):
    """struct neap_retention_options"""

    _fields_ = [
        ("keep_best", c.c_uint64),
        ("keep_last", c.c_uint64),
        ("keep_every_steps", c.c_uint64),
        ("grace_ns", c.c_uint64),
        ("metric", c.c_char_p),
        ("mode", c.c_int),
        ("newest_for_best", c.c_bool),
        ("pins", c.POINTER(c.c_char_p)),
        ("pin_count", c.c_size_t),
        ("resume", c.c_char_p),
        ("pattern", c.c_char_p),
        ("older_than_ns", c.c_uint64),
        ("max_checkpoints", c.c_uint64),
        ("max_total_bytes", c.c_uint64),
        ("best_yields", c.c_bool),
        ("delete_rest", c.c_bool),
        ("trash_ns", c.c_uint64),
    ]


class RetentionPart(c.Structure):
    """struct neap_retention_part"""

    _fields_ = [
        ("name", c.c_char_p),
        ("bytes", c.c_uint64),
        ("modified_ns", c.c_uint64),
        ("device", c.c_uint64),
        ("inode", c.c_uint64),
        ("folder", c.c_bool),
    ]


class RetentionEntry(c.Structure):
    """struct neap_retention_entry"""

    _fields_ = [
        ("name", c.c_char_p),
        ("parts", c.POINTER(RetentionPart)),
        ("part_count", c.c_size_t),
        ("bytes", c.c_uint64),
        ("freed_bytes", c.c_uint64),
        ("modified_ns", c.c_uint64),
        ("device", c.c_uint64),
        ("inode", c.c_uint64),
        ("step", c.c_uint64),
        ("metric", c.c_double),
        ("facts", c.c_uint32),
        ("reasons", c.c_uint32),
        ("best_rank", c.c_uint32),
        ("done", c.c_uint32),
        ("cause", c.c_int32),
        ("torn", c.c_char_p),
        ("drop", c.c_bool),
    ]


class RetentionPlan(c.Structure):
    """struct neap_retention_plan"""

    _fields_ = [
        ("folder", c.c_char_p),
        ("entries", c.POINTER(RetentionEntry)),
        ("count", c.c_size_t),
        ("metric", c.c_char * 64),
        ("source", c.c_char * 512),
        ("mode", c.c_int),
        ("metric_inferred", c.c_bool),
        ("mode_inferred", c.c_bool),
        ("newest_for_best", c.c_bool),
        ("order_disagrees", c.c_bool),
        ("keep_count", c.c_size_t),
        ("drop_count", c.c_size_t),
        ("keep_bytes", c.c_uint64),
        ("drop_bytes", c.c_uint64),
        ("freed_bytes", c.c_uint64),
        ("over_bytes", c.c_uint64),
        ("over_count", c.c_uint64),
        ("link_count", c.c_size_t),
        ("trash_count", c.c_size_t),
        ("trash_bytes", c.c_uint64),
        ("trash_until_s", c.c_uint64),
        ("made_ns", c.c_uint64),
    ]


class RetentionFolder(c.Structure):
    """struct neap_retention_folder"""

    _fields_ = [
        ("path", c.c_char_p),
        ("count", c.c_size_t),
        ("trash", c.c_bool),
    ]


class RetentionFolders(c.Structure):
    """struct neap_retention_folders"""

    _fields_ = [
        ("at", c.POINTER(RetentionFolder)),
        ("count", c.c_size_t),
        ("incomplete", c.c_bool),
    ]


class RetentionResult(c.Structure):
    """struct neap_retention_result"""

    _fields_ = [
        ("moved_count", c.c_size_t),
        ("failed_count", c.c_size_t),
        ("changed_count", c.c_size_t),
        ("moved_bytes", c.c_uint64),
        ("deleted_count", c.c_size_t),
        ("deleted_bytes", c.c_uint64),
        ("restored_count", c.c_size_t),
        ("trash_until_s", c.c_uint64),
    ]


class Levels(c.Structure):
    """struct neap_levels"""

    _fields_ = [("warn_bytes", c.c_uint64), ("degrade_bytes", c.c_uint64), ("stop_bytes", c.c_uint64)]


class Threshold(c.Structure):
    """struct neap_threshold"""

    _fields_ = [
        ("warned", c.c_bool),
        ("below_degrade", c.c_uint64),
        ("below_stop", c.c_uint64),
        ("settled_at", c.c_uint64),
    ]


LogLine = c.CFUNCTYPE(None, c.c_void_p, c.c_int, c.c_char_p)


class LogSink(c.Structure):
    """struct neap_log_sink"""

    _fields_ = [("line", LogLine), ("context", c.c_void_p)]


STRUCTS = {
    "neap_levels": Levels,
    "neap_threshold": Threshold,
    "neap_log_sink": LogSink,
    "neap_retention_options": RetentionOptions,
    "neap_retention_part": RetentionPart,
    "neap_retention_entry": RetentionEntry,
    "neap_retention_plan": RetentionPlan,
    "neap_retention_folder": RetentionFolder,
    "neap_retention_folders": RetentionFolders,
    "neap_retention_result": RetentionResult,
    "neap_leak": Leak,
    "neap_drain_ended": DrainEnded,
    "neap_published": Published,
    "neap_event": Event,
    "neap_event_held": Held,
    "neap_event_settings": EventSettings,
    "neap_event_oom": EventOom,
    "neap_event_oom_limits": EventOomLimits,
    "neap_event_oom_pools": EventOomPools,
    "neap_event_tag_bytes": EventTagBytes,
    "neap_event_mark": EventMark,
    "neap_event_step": EventStep,
    "neap_event_split": EventSplit,
    "neap_event_rung": EventRung,
    "neap_event_cleanup": EventCleanup,
    "neap_event_metric": EventMetric,
    "neap_event_leak": EventLeak,
    "neap_event_forecast": EventForecast,
    "neap_event_request": EventRequest,
    "neap_event_process": EventProcess,
    "neap_external_request": ExternalRequest,
    "neap_device_answer": DeviceAnswer,
    "neap_error": Error,
    "neap_stat": Stat,
    "neap_stats": Stats,
    "neap_block_info": BlockInfo,
    "neap_device_info": DeviceInfo,
    "neap_alloc_options": AllocOptions,
    "neap_split": Split,
    "neap_train_settings": TrainSettings,
}

_handle = c.c_void_p  # a pointer to an opaque struct
_err = c.POINTER(Error)
_out_handle = c.POINTER(c.c_void_p)
_out_u64 = c.POINTER(c.c_uint64)

# name: (result, arguments). An enum is an int.
FUNCTIONS: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "neap_version": (c.c_char_p, ()),
    "neap_status_name": (c.c_char_p, (c.c_int,)),
    # devices and allocators
    "neap_driver_open": (c.c_int, (c.c_int, _out_handle, _err)),
    "neap_driver_close": (None, (_handle,)),
    "neap_driver_backend": (c.c_int, (_handle,)),
    "neap_driver_device_count": (c.c_int, (_handle,)),
    "neap_device_open": (c.c_int, (_handle, c.c_int, _out_handle, _err)),
    "neap_device_close": (None, (_handle,)),
    "neap_device_info": (c.POINTER(DeviceInfo), (_handle,)),
    "neap_device_memory": (c.c_int, (_handle, _out_u64, _out_u64, _err)),
    "neap_alloc_create": (c.c_int, (_handle, c.POINTER(AllocOptions), _out_handle, _err)),
    "neap_alloc_destroy": (None, (_handle,)),
    "neap_malloc": (c.c_int, (_handle, c.c_size_t, c.c_void_p, _out_u64, _err)),
    "neap_free": (c.c_int, (_handle, c.c_uint64)),
    "neap_empty_cache": (c.c_int, (_handle, _out_u64, _err)),
    "neap_set_fraction": (c.c_int, (_handle, c.c_double, _err)),
    "neap_get_fraction": (c.c_double, (_handle,)),
    "neap_get_stats": (None, (_handle, c.POINTER(Stats))),
    "neap_reset_peak_stats": (None, (_handle,)),
    "neap_reset_accumulated_stats": (None, (_handle,)),
    "neap_stats_summary": (c.c_int, (c.POINTER(Stats), c.c_char_p, c.c_bool, c.c_char_p)),
    # PyTorch's plug-in; neap_plugin_start takes a pointer to a function
    "neap_plugin_alloc": (c.c_void_p, (c.c_int,)),
    "neap_plugin_blocks": (c.c_size_t, (c.c_int, c.POINTER(BlockInfo), c.c_size_t)),
    # the agent
    "neap_attach": (c.c_int, (_err,)),
    "neap_detach": (None, ()),
    "neap_attach_state": (c.c_int, (_err,)),
    "neap_attach_note": (None, (c.c_char_p,)),
    # PyTorch's allocator, made reachable
    "neap_external_open": (c.c_int, (c.c_char_p, _err)),
    "neap_external_close": (None, ()),
    "neap_external_next": (c.c_int, (c.c_uint32, c.POINTER(ExternalRequest), _err)),
    "neap_external_begin": (c.c_int, (c.c_uint64, _err)),
    "neap_external_answer": (c.c_int, (c.c_uint64, c.c_int, c.c_char_p, c.POINTER(DeviceAnswer), c.c_size_t, _err)),
    "neap_external_publish": (c.c_int, (c.POINTER(Published), _err)),
    "neap_external_held": (c.c_int, (c.POINTER(c.c_ubyte), _out_u64, _err)),
    "neap_external_emit": (None, (c.POINTER(Event),)),
    "neap_external_name": (c.c_uint16, (c.c_char_p,)),
    # the ladder
    "neap_ladder_next": (c.c_int, (c.POINTER(TrainSettings), c.c_uint32, c.POINTER(TrainSettings))),
    "neap_rung_name": (c.c_char_p, (c.c_int,)),
    # thresholds and leftovers
    "neap_threshold_decide": (c.c_int, (c.POINTER(Threshold), c.POINTER(Levels), c.c_uint64, c.c_bool, c.c_uint64)),
    "neap_threshold_warns_below": (c.c_uint64, (c.POINTER(Levels), c.c_bool)),
    "neap_clear_leftovers": (c.c_int, (c.c_void_p, c.POINTER(LogSink), _err)),
    # drains
    "neap_drain_begin": (c.c_int, (_out_handle, _err)),
    "neap_drain_wait": (c.c_int, (_handle, c.POINTER(DrainEnded), _out_u64, _err)),
    "neap_drain_end": (None, (_out_handle,)),
    # leaks
    "neap_leak_test": (None, (_out_u64, c.c_size_t, c.c_uint64, c.POINTER(Leak))),
    # checkpoints
    "neap_checkpoint_begin": (c.c_int, (c.c_char_p, _out_handle, _err)),
    "neap_checkpoint_write": (c.c_int, (_handle, c.c_void_p, c.c_size_t, _err)),
    "neap_checkpoint_commit": (c.c_int, (_handle, _err)),
    "neap_checkpoint_abort": (None, (_handle,)),
    "neap_retention_defaults": (None, (c.POINTER(RetentionOptions),)),
    "neap_retention_plan_make": (
        c.c_int,
        (c.c_char_p, c.POINTER(RetentionOptions), c.c_uint64, c.POINTER(RetentionPlan), _err),
    ),
    "neap_retention_plan_fini": (None, (c.POINTER(RetentionPlan),)),
    "neap_retention_reason_text": (
        c.c_char_p,
        (c.POINTER(RetentionPlan), c.POINTER(RetentionOptions), c.c_size_t, c.c_char_p, c.c_size_t),
    ),
    "neap_retention_apply": (
        c.c_int,
        (c.POINTER(RetentionPlan), c.POINTER(RetentionOptions), c.POINTER(RetentionResult), _err),
    ),
    "neap_retention_find_folders": (
        c.c_int,
        (c.c_char_p, c.POINTER(RetentionOptions), c.c_size_t, c.POINTER(RetentionFolders), _err),
    ),
    "neap_retention_folders_fini": (None, (c.POINTER(RetentionFolders),)),
    "neap_retention_restore": (c.c_int, (c.c_char_p, c.c_char_p, c.POINTER(RetentionResult), _err)),
}
