"""A program for test_allocator.py: what a program can observe of PyTorch's allocator, area by area, as one JSON
object.

    allocator_areas.py default | expandable | neap | plugin [AREA...]      (expandable: by PYTORCH_CUDA_ALLOC_CONF)

Each area is a function of its own; what it returns is compared between allocators. Addresses never appear.
"""

import ctypes
import gc
import json
import os
import pickle
import sys
import tempfile
import threading
import traceback
import warnings

warnings.filterwarnings("ignore")
import torch

MIB = 1 << 20
cuda = torch.cuda
memory = torch.cuda.memory
areas = {}


def area(function):
    areas[function.__name__] = function
    return function


def fresh():
    gc.collect()
    cuda.synchronize()
    cuda.empty_cache()
    cuda.reset_peak_memory_stats()
    cuda.reset_accumulated_memory_stats()


def block(mebibytes, device="cuda"):
    return torch.empty(int(mebibytes * MIB), dtype=torch.uint8, device=device)


def counted(names=("allocation", "active", "requested_bytes"), pools=("all", "small_pool", "large_pool")):
    stats = cuda.memory_stats()
    return {f"{n}.{p}.{v}": stats[f"{n}.{p}.{v}"] for n in names for p in pools for v in ("current", "peak", "allocated", "freed")}


def raised(function, *arguments):
    try:
        function(*arguments)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return ""


@area
def keys():
    block(1)
    return {"keys": [k for k in cuda.memory_stats() if "private_pools" not in k], "nested": sorted(cuda.memory_stats_as_nested_dict())}


@area
def counters():
    """Live, freed, small and large blocks; requested sizes before rounding."""
    kept = [torch.empty(n, dtype=torch.uint8, device="cuda") for n in (1, 511, 512, 513, 700_000, MIB, MIB + 1, 3 * MIB + 7)]
    first = counted()
    del kept[::2]
    second = counted()
    cuda.reset_peak_memory_stats()
    third = counted()
    cuda.reset_accumulated_memory_stats()
    block(2)
    fourth = counted()
    rounded = {k: v for k, v in cuda.memory_stats().items() if k.startswith("allocated_bytes.small_pool")}
    return {"live": first, "freed": second, "peaks reset": third, "sums reset": fourth, "rounded": rounded}


@area
def totals():
    """reserved >= active >= allocated >= requested, and empty_cache gives everything back."""
    a = block(30)
    b = block(50)
    del a
    stats = cuda.memory_stats()
    ordered = [stats[f"{n}_bytes.all.current"] for n in ("reserved", "active", "allocated", "requested")]
    free, total = cuda.mem_get_info()
    cuda.empty_cache()
    kept = cuda.memory_reserved()
    more = cuda.mem_get_info()[0] - free
    del b
    cuda.empty_cache()
    after = cuda.memory_stats()
    return {
        "ordered": ordered == sorted(ordered, reverse=True),
        "given back, as the driver says": more == stats["reserved_bytes.all.current"] - kept,
        "nothing stays": [after[f"{n}.all.current"] for n in ("reserved_bytes", "allocated_bytes", "active", "segment")],
        "calls": after["num_device_alloc"] >= 1 and after["num_device_free"] >= 1,
        "plain": [after[n] for n in ("num_ooms", "num_alloc_retries", "max_split_size", "oversize_allocations.current")],
        "functions": [cuda.memory_allocated(), cuda.memory_reserved(), cuda.max_memory_reserved() >= 80 * MIB, total],
    }


@area
def summary():
    block(5)
    text = cuda.memory_summary() + cuda.memory_summary(abbreviated=True)
    return {"rows": [line[:24] for line in text.splitlines()], "width": sorted({len(line) for line in text.splitlines()})}


@area
def snapshot():
    a = block(3)
    b = torch.empty(100, device="cuda")
    c = block(30)
    del a
    segments = cuda.memory_snapshot()
    blocks = [x for s in segments for x in s["blocks"]]
    live = [x for x in blocks if x["state"] == "active_allocated"]
    stats = cuda.memory_stats()
    return {
        "segment": sorted(segments[0]),
        "block": sorted(blocks[0]),
        "states": sorted({x["state"] for x in blocks}),
        "live": sorted(x["requested_size"] for x in live),
        "types": sorted({s["segment_type"] for s in segments}),
        "sums": [
            sum(s["total_size"] for s in segments) == stats["reserved_bytes.all.current"],
            sum(s["allocated_size"] for s in segments) == stats["allocated_bytes.all.current"],
            sum(s["active_size"] for s in segments) == stats["active_bytes.all.current"],
            sum(s["requested_size"] for s in segments) == stats["requested_bytes.all.current"],
            all(sum(x["size"] for x in s["blocks"]) == s["total_size"] for s in segments),
        ],
        "addresses": {t.data_ptr() for t in (b, c)} == {x["address"] for x in live},
        "sorted": [s["address"] for s in segments] == sorted(s["address"] for s in segments),
    }


def actions(snapshot, device=0):
    """The events of blocks; segments differ by design."""
    return [(e["action"], e["size"]) for e in snapshot["device_traces"][device] if not e["action"].startswith("segment") and e["action"] != "snapshot"]


def allocate_here():
    return block(4)


@area
def history():
    memory._record_memory_history(max_entries=1000)
    a = allocate_here()
    b = torch.empty(77, device="cuda")
    del a
    inside = memory._snapshot()
    entries = inside["device_traces"][0]
    allocated = [e for e in entries if e["action"] == "alloc"]
    names = [f["name"] for f in allocated[0].get("frames", [])]
    segments = {e["action"] for e in entries if e["action"].startswith("segment")}
    live = [x for s in inside["segments"] for x in s["blocks"] if x["state"] == "active_allocated"]
    result = {
        "actions": actions(inside),
        "entry": sorted(k for k in allocated[0] if k not in ("frames",)),
        "stack": ["allocate_here" in names, "history" in names],
        "a segment was taken": bool(segments & {"segment_alloc", "segment_map"}),
        "frames of live blocks": [any(f["name"] == "history" for f in x.get("frames", [])) for x in live],
        "times rise": [e["time_us"] for e in entries] == sorted(e["time_us"] for e in entries),
        "top": sorted(inside),
        "settings": sorted(inside["allocator_settings"]),
    }
    memory._record_memory_history(max_entries=3)
    for _ in range(5):
        block(1)
    result["bounded"] = len(memory._snapshot()["device_traces"][0])
    memory._record_memory_history(enabled=None)
    block(1)
    result["ended"] = len(memory._snapshot()["device_traces"][0])
    del b
    return result


@area
def history_levels():
    """How much is recorded: stacks of live blocks, of every allocation, of frees too."""
    found = {}
    for context in ("state", "alloc", "all", None):
        memory._record_memory_history(context=context)
        kept = allocate_here()
        gone = allocate_here()
        del gone
        inside = memory._snapshot()
        entries = inside["device_traces"][0]
        live = [x for s in inside["segments"] for x in s["blocks"] if x["state"] == "active_allocated"]
        found[str(context)] = {
            "events": sorted({(e["action"], bool(e.get("frames"))) for e in entries if e["action"] in ("alloc", "free_requested", "free_completed")}),
            "live": [bool(x.get("frames")) for x in live if x["requested_size"] == 4 * MIB],
        }
        memory._record_memory_history(enabled=None)
        del kept
    return found


@area
def viewer():
    """PyTorch's own viewer opens a dump."""
    from torch.cuda import _memory_viz

    memory._record_memory_history()
    kept = [block(n) for n in (1, 2, 30)]
    del kept[1]
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "dump.pickle")
        memory._dump_snapshot(path)
        with open(path, "rb") as file:
            data = pickle.load(file)
    memory._record_memory_history(enabled=None)
    return {
        "summary": "segments" in _memory_viz.segsum(data).lower() or len(_memory_viz.segsum(data)) > 100,
        "trace": _memory_viz.trace(data).count("alloc") > 2,
        "pages": [len(_memory_viz.trace_plot(data)) > 1000, len(_memory_viz.segment_plot(data)) > 1000],
    }


@area
def history_extras():
    """What newer versions add: cleared, skipped actions, metadata from the user, annotations."""
    if torch.__version__ < (2, 12):
        return {}
    memory._record_memory_history(skip_actions=["free_requested"])
    kept = block(2)
    del kept
    result = {"skipped": actions(memory._snapshot())}
    memory._record_memory_history(clear_history=True)
    result["cleared"] = actions(memory._snapshot())
    memory._set_memory_metadata("mine")
    kept = block(2)
    memory._set_memory_metadata("")
    entry = [e for e in memory._snapshot()["device_traces"][0] if e["action"] == "alloc"][-1]
    result["metadata"] = [entry.get("user_metadata"), memory._get_memory_metadata(), memory._memory_metadata_supported()]
    if hasattr(memory, "_annotate_tensor"):
        memory._annotate_tensor(kept, "noted")
    result["annotated"] = [(e["action"], e["size"], e.get("user_metadata")) for e in memory._snapshot()["device_traces"][0]][-1:]
    result["skip of nothing known"] = raised(lambda: memory._record_memory_history(skip_actions=["nothing"])).split(".")[0][:60]
    memory._record_memory_history(enabled=None)
    return result


@area
def record_stream():
    side = cuda.Stream()
    a = block(8)
    with cuda.stream(side):
        torch.cuda._sleep(1000)
    address = a.data_ptr()
    a.record_stream(side)
    del a
    held = [cuda.memory_stats()["allocated_bytes.all.current"], cuda.memory_stats()["active.all.current"]]
    cuda.synchronize()
    again = block(8)
    return {"held": held, "then": counted(("allocation", "active")), "reused": again.data_ptr() == address}


@area
def streams():
    """One stream's memory is not given to another."""
    side = cuda.Stream()
    a = block(8)
    address = a.data_ptr()
    del a
    with cuda.stream(side):
        other = block(8)
    again = block(8)
    found = {s["stream"] for s in cuda.memory_snapshot()}
    return {"apart": other.data_ptr() != address, "reused": again.data_ptr() == address, "streams": sorted(s == 0 for s in found)}


@area
def graphs():
    x = torch.zeros(64, 64, device="cuda")
    graph = cuda.CUDAGraph()
    second = cuda.CUDAGraph()
    with cuda.graph(graph):
        y = (x + 1) * 2
        z = torch.empty(3 * MIB, dtype=torch.uint8, device="cuda")
    pools = {tuple(s["segment_pool_id"]) for s in cuda.memory_snapshot()}
    inside = {tuple(s["segment_pool_id"]) for s in cuda.memory_snapshot() for b in s["blocks"] if b["address"] == z.data_ptr()}
    with cuda.graph(second, pool=graph.pool()):
        w = y + 1
    both = {tuple(s["segment_pool_id"]) for s in cuda.memory_snapshot()}
    graph.replay()
    second.replay()
    reserved = cuda.memory_reserved()
    del y, z, w
    cuda.empty_cache()
    kept = cuda.memory_reserved() > 0
    graph.reset()
    second.reset()
    del graph, second
    gc.collect()
    cuda.empty_cache()
    return {
        "private": (0, 0) not in inside and len(inside) == 1 and inside <= pools,
        "shared": both == pools,
        "kept while they live": kept,
        "given back": cuda.memory_reserved() < reserved,
        "requested": counted(("requested_bytes",)),
    }


@area
def captured_twice():
    """In a capture memory comes from the driver, and forbidden calls are refused with PyTorch's messages."""
    stream = cuda.Stream()
    graph = cuda.CUDAGraph()
    stream.wait_stream(cuda.current_stream())
    with cuda.stream(stream):
        graph.capture_begin()
        a = block(40)
        del a
        b = block(40)
        graph.capture_end()
    graph.replay()
    cuda.synchronize()
    live = cuda.memory_stats()["allocation.all.current"]
    del b
    return {"live": live, "allocated": cuda.memory_stats()["allocation.all.allocated"]}


@area
def compiled_graphs():
    """cudagraph trees: their checks and the states of their pools."""
    if torch.__version__ < (2, 5):
        return {}
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = tempfile.mkdtemp()

    def step(x):
        y = torch.sin(x) + 1
        return y * 2, y

    compiled = torch.compile(step, backend="cudagraphs")
    x = torch.ones(256, 256, device="cuda")
    kept = []
    for _ in range(4):
        torch.compiler.cudagraph_mark_step_begin()
        first, second = compiled(x)
        kept = [first.shape, second.shape]
        third = compiled(first.clone())[0]
    shape = list(third.shape)
    del first, second, third
    return {"shape": shape, "kept": [list(s) for s in kept]}


@area
def pool_states():
    """A pool's state is saved and restored: the blocks that lived then, at the same addresses."""
    x = torch.zeros(64, device="cuda")
    first = cuda.CUDAGraph()
    second = cuda.CUDAGraph()
    with cuda.graph(first):
        y = x + 1
        del y
    pool = first.pool()
    device = cuda.current_device()
    empty = torch._C._cuda_getCheckpointState(device, pool)
    with cuda.graph(second, pool=pool):
        a = block(3)
        b = torch.empty(1000, device="cuda") + x[0]
    state = torch._C._cuda_getCheckpointState(device, pool)
    pointers = {a.data_ptr(), b.data_ptr()}
    before = torch._C._cuda_checkPoolLiveAllocations(device, pool, pointers)
    wrong = torch._C._cuda_checkPoolLiveAllocations(device, pool, {a.data_ptr()})
    live = counted(("allocation",), ("all",))
    storages = [t.untyped_storage()._cdata for t in (a, b)]
    torch._C._cuda_setCheckpointPoolState(device, empty, storages, [])  # the tensors lose their memory
    between = torch._C._cuda_checkPoolLiveAllocations(device, pool, set())
    torch._C._cuda_setCheckpointPoolState(device, state, [], [])  # and it is live again, at its old address
    after = torch._C._cuda_checkPoolLiveAllocations(device, pool, pointers)
    same = counted(("allocation",), ("all",))
    for pointer in pointers:
        memory.caching_allocator_delete(pointer)
    del a, b
    none = torch._C._cuda_checkPoolLiveAllocations(device, pool, set())
    unknown = raised(torch._C._cuda_checkPoolLiveAllocations, device, (0, 4711), set()) != ""
    return {
        "checks": [before, wrong, between, after, none, unknown],
        "same": [same[k] == live[k] for k in live if "current" in k],
    }


@area
def pools():
    if not hasattr(torch.cuda, "MemPool") or torch.__version__ < (2, 8):
        return {}
    pool = cuda.MemPool()
    outside = block(4)
    with cuda.use_mem_pool(pool):
        inside = block(4)
        used = pool.use_count()
    found = pool.snapshot()
    addresses = {b["address"] for s in found for b in s["blocks"]}
    result = {
        "uses": [used, pool.use_count()],
        "holds": [inside.data_ptr() in addresses, outside.data_ptr() in addresses],
        "of it": {tuple(s["segment_pool_id"]) == tuple(pool.id) for s in found} == {True},
    }
    stats = cuda.memory_stats()
    named = "_".join(map(str, pool.id))
    if torch.__version__ >= (2, 12):
        current = stats[f"reserved_bytes_by_private_pools.{named}.all.current"]
        result["counted"] = current == sum(s["total_size"] for s in found)
    reserved = cuda.memory_reserved()
    del inside
    with cuda.use_mem_pool(pool):
        again = block(4)
    result["reused"] = cuda.memory_reserved() == reserved
    cached = block(60)
    del cached
    reserved = cuda.memory_reserved()
    held = sum(s["total_size"] for s in pool.snapshot())
    del again, pool
    gc.collect()
    result["given back, and nothing else"] = reserved - cuda.memory_reserved() == held
    return result


@area
def pool_on_oom():
    """A pool's free memory serves a request that finds none elsewhere."""
    if not hasattr(torch.cuda, "MemPool") or torch.__version__ < (2, 12):
        return {}
    pool = cuda.MemPool(use_on_oom=True)
    with cuda.use_mem_pool(pool):
        kept = block(1000)
    del kept
    first = block(1000)
    addresses = [b["address"] for s in pool.snapshot() for b in s["blocks"] if b["state"] == "active_allocated"]
    third = raised(block, 1000).split(".")[0]
    result = {"lent": first.data_ptr() in addresses, "no more": third}
    del first, pool
    gc.collect()
    cuda.empty_cache()
    result["given back"] = cuda.memory_reserved()
    return result


@area
def pool_not_split():
    if not hasattr(torch.cuda, "MemPool") or torch.__version__ < (2, 12):
        return {}
    pool = cuda.MemPool(no_split=True)
    with cuda.use_mem_pool(pool):
        a = block(3)
        b = block(3)
    blocks = [len(s["blocks"]) for s in pool.snapshot()]
    live = cuda.memory_stats()["allocation.all.current"]
    side = cuda.Stream()
    a.record_stream(side)
    del a, b
    freed = cuda.memory_stats()["allocation.all.current"]
    del pool
    gc.collect()
    return {"blocks": blocks, "live": [live, freed]}


@area
def pool_with_allocator():
    """A MemPool whose memory comes from the program's own functions."""
    if not hasattr(torch.cuda, "MemPool") or torch.__version__ < (2, 12):
        return {}
    driver = ctypes.CDLL("libcuda.so.1")
    calls = []

    @ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_ssize_t, ctypes.c_int, ctypes.c_void_p)
    def allocate(size, device, stream):
        address = ctypes.c_uint64()
        calls.append(("alloc", size, driver.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(size))))
        return address.value

    @ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_void_p)
    def free(pointer, size, device, stream):
        calls.append(("free", size, driver.cuMemFree_v2(ctypes.c_uint64(pointer))))

    addresses = [ctypes.cast(function, ctypes.c_void_p).value for function in (allocate, free)]
    pool = cuda.MemPool(torch._C._cuda_customAllocator(*addresses))
    with cuda.use_mem_pool(pool):
        kept = block(3)
    outside = block(3)
    found = [(s["total_size"], len(s["blocks"])) for s in pool.snapshot()]
    del kept, outside, pool
    gc.collect()
    cuda.empty_cache()
    return {"calls": calls, "found": found}


@area
def private():
    """Functions of torch.cuda.memory whose names begin with an underscore, and that no other area calls."""
    result = {"current": type(memory._get_current_allocator()).__name__}
    if hasattr(memory, "_host_allocator"):
        result["host"] = memory._host_allocator() is not None
    settings = "garbage_collection_threshold:0.5"
    result["settings"] = [raised(memory._set_allocator_settings, settings), raised(memory._set_allocator_settings, "nothing:1") != ""]
    if not hasattr(memory, "_allocation_traceback"):
        return result
    memory._record_memory_history()
    kept = allocate_here()
    frames = memory._allocation_traceback(kept.data_ptr())
    result["frames"] = "allocate_here" in [frame["name"] for frame in frames]
    result["unknown"] = memory._allocation_traceback(4096)
    memory._record_memory_history(enabled=None)
    return result


@area
def out_of_memory():
    seen = []
    torch._C._cuda_attach_out_of_memory_observer(lambda *a: seen.append(a))
    kept = block(100)
    text = raised(block, 1 << 20)
    far = raised(lambda: torch.empty(1 << 59, dtype=torch.uint8, device="cuda"))
    again = block(100)
    stats = cuda.memory_stats()
    total = cuda.mem_get_info()[1]
    del kept, again
    return {
        "type": text.split(":")[0],
        "begins": text.split(". GPU")[0].split(": ", 1)[1],
        "parts": [part in text for part in ("GPU 0 has a total capacity of", "is free", "is allocated by PyTorch", "is reserved by PyTorch but unallocated")],
        "huge": far.split(". ")[0],
        "observed": [len(seen), seen[0][0], seen[0][1] == 1 << 40, seen[0][2] == total, 0 < seen[0][3] <= total],
        "counted": stats["num_ooms"],
        "goes on": stats["allocation.all.current"],
    }


@area
def out_of_memory_entry():
    memory._record_memory_history()
    raised(block, 1 << 20)
    entries = [e for e in memory._snapshot()["device_traces"][0] if e["action"] == "oom"]
    memory._record_memory_history(enabled=None)
    return {"entries": [(sorted(k for k in e if k != "frames"), e["size"]) for e in entries]}


@area
def retried():
    """Cached memory of another size serves a request that finds nothing else."""
    a = block(1100)
    del a
    b = block(600)
    c = block(600)
    live = cuda.memory_stats()["allocation.all.current"]
    del b, c
    return {"live": live}


@area
def fraction():
    before = cuda.get_per_process_memory_fraction() if hasattr(cuda, "get_per_process_memory_fraction") else 1.0
    cuda.set_per_process_memory_fraction(0.25)
    set_to = cuda.get_per_process_memory_fraction() if hasattr(cuda, "get_per_process_memory_fraction") else 0.25
    kept = block(400)
    text = raised(block, 400)
    cuda.set_per_process_memory_fraction(1.0)
    more = block(400)
    del kept, more
    allowed = "MiB allowed; " in text or torch.__version__ < (2, 5)  # PyTorch 2.4 does not name the limit; neap always does
    return {"before": before, "now": set_to, "limited": text.split(".")[0], "allowed": allowed,
            "wrong": [raised(cuda.set_per_process_memory_fraction, 1.5), raised(cuda.set_per_process_memory_fraction, 1)]}  # fmt: skip


@area
def raw():
    pointer = memory.caching_allocator_alloc(5 * MIB)
    live = cuda.memory_allocated()
    memory.caching_allocator_delete(pointer)
    side = cuda.Stream()
    other = memory.caching_allocator_alloc(MIB, stream=side)
    memory.caching_allocator_delete(other)
    wrong = raised(memory.caching_allocator_delete, 4096)
    return {"live": live, "freed": cuda.memory_allocated(), "wrong": wrong.split(":")[1].strip()}


@area
def disabled():
    """While caching is off, memory comes from the driver and goes back to it."""
    if not hasattr(memory, "caching_allocator_disabled"):
        return {}
    enabled = [torch._C._cuda_cudaCachingAllocator_is_enabled()]
    with memory.caching_allocator_disabled():
        enabled.append(torch._C._cuda_cudaCachingAllocator_is_enabled())
        free = cuda.mem_get_info()[0]
        a = block(64)
        took = free - cuda.mem_get_info()[0]
    enabled.append(torch._C._cuda_cudaCachingAllocator_is_enabled())
    counted_live = cuda.memory_allocated()
    del a
    return {"enabled": enabled, "took": took, "counted": counted_live, "back": cuda.mem_get_info()[0] - free}


@area
def devices():
    """Two devices: each has its own account, and copies go between them."""
    first = torch.arange(1000, device="cuda:0")
    second = torch.arange(5, device="cuda:1")
    there = first.to("cuda:1")
    strided = torch.arange(100, device="cuda:0").reshape(10, 10).t().to("cuda:1")
    allocated = [cuda.memory_stats(i)["allocation.all.current"] for i in (0, 1)]
    with cuda.device(1):
        kept = block(3)
        inside = cuda.memory_allocated() > 3 * MIB
    del kept
    equal = bool((there.cpu() == torch.arange(1000)).all())
    freed_elsewhere = cuda.memory_stats(1)["allocation.all.current"]
    text = raised(block, 1 << 20, "cuda:1")
    del first, second, there, strided
    return {"allocated": allocated, "inside": inside, "equal": equal, "after": freed_elsewhere, "names the device": "GPU 1 has" in text}


@area
def threads():
    """Blocks allocated in one thread and freed in another."""
    made = []

    def work():
        made.extend(block(1) for _ in range(20))

    workers = [threading.Thread(target=work) for _ in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    live = cuda.memory_stats()["allocation.all.current"]
    made.clear()
    return {"live": live, "freed": counted(("allocation",))}


@area
def profiler():
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as seen:
        kept = allocate_here()
        del kept
    names = {e.key: getattr(e, "self_device_memory_usage", getattr(e, "self_cuda_memory_usage", 0)) for e in seen.key_averages()}
    return {"empty": names.get("aten::empty")}


@area
def gpu_trace():
    """The hooks through which PyTorch's sanitizer sees memory."""
    seen = []
    from torch.cuda import _gpu_trace as trace  # type: ignore
    trace.register_callback_for_memory_allocation(lambda p: seen.append("allocated"))
    trace.register_callback_for_memory_deallocation(lambda p: seen.append("freed"))
    torch._C._activate_gpu_trace()
    block(1)
    return {"seen": seen}


@area
def training():
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(256, 512), torch.nn.ReLU(), torch.nn.Linear(512, 10)).cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    scaler = torch.amp.GradScaler("cuda")
    for _ in range(3):
        with torch.autocast("cuda", dtype=torch.float16):
            loss = torch.nn.functional.cross_entropy(model(torch.randn(64, 256, device="cuda")), torch.zeros(64, dtype=torch.long, device="cuda"))
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
    return {"loss": loss.item(), **counted(("allocation", "requested_bytes"), ("all",))}


@area
def shared():
    """Tensors for other processes. What this returns is not compared: before PyTorch 2.5 neap refuses, and says what to do."""
    from torch.multiprocessing.reductions import reduce_tensor

    kept = block(4)
    found = {"plain": raised(reduce_tensor, kept)}
    if torch.__version__ >= (2, 12):
        pool = cuda.MemPool(no_split=True)
        with cuda.use_mem_pool(pool):
            inside = block(4)
        found["of a pool"] = raised(reduce_tensor, inside)
        del inside, pool
    return found


@area
def others():
    """The rest of torch.cuda.memory."""
    memory.reset_max_memory_allocated()
    memory.reset_max_memory_cached()
    host = sorted(memory.host_memory_stats()) if hasattr(memory, "host_memory_stats") else []
    pinned = torch.empty(1000).pin_memory()
    block(2)
    return {
        "cached": [memory.memory_cached() == cuda.memory_reserved(), memory.max_memory_cached() == cuda.max_memory_reserved()],
        "host": host[:3],
        "pinned": pinned.is_pinned(),
        "largest": cuda.mem_get_info()[0] > 0,
        "swapped late": raised(memory.change_current_allocator, memory._CUDAAllocator(torch._C._cuda_getAllocator())) != "",
    }


def main():
    which = sys.argv[1]
    chosen = sys.argv[2:] or [name for name in areas if name != "shared"]  # which keeps the tensors that it shared
    if which in ("neap", "plugin"):
        import neap

        neap.install_allocator(plugin=which == "plugin")
    torch.zeros(1, device="cuda")
    results = {"backend": cuda.get_allocator_backend()}
    for name in chosen:
        try:
            fresh()
            results[name] = areas[name]()
        except BaseException:
            results[name] = {"failed": traceback.format_exc(limit=-3)}
    fresh_failed = ""
    try:
        fresh()
    except BaseException:
        fresh_failed = traceback.format_exc(limit=-3)
    results["end"] = {"failed": fresh_failed, "live": counted(("allocation",), ("all",))["allocation.all.current"]}
    print(json.dumps(results), flush=True)
    if "shared" in chosen:
        os._exit(0)  # PyTorch's destructors of tensors still shared read freed memory, with any allocator


if __name__ == "__main__":
    main()
