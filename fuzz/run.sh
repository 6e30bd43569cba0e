#!/usr/bin/env bash
# fuzz/run.sh [SECONDS] [TARGET...]: builds the fuzz targets with clang's libFuzzer, the address and the undefined-behaviour
# sanitizers in build-fuzz, and runs each (analyze fatbin frame message page record result sidecar simulated spec stacks trace trainer whole) for SECONDS (60) over seeds
# made here by neap itself. What it learns stays in build-fuzz/corpus; an input that fails a target is kept as
# build-fuzz/TARGET-*, and the exit status is 1. BUILD says where neap is built (build).
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=${1:-60}
shift || true
[ $# -gt 0 ] || set -- analyze fatbin frame message page record result sidecar simulated spec stacks trace trainer whole
for tool in clang meson ninja; do
	command -v "$tool" >/dev/null || {
		echo "fuzz/run.sh needs $tool" >&2
		exit 69
	}
done
build=${BUILD:-build} folder=build-fuzz sanitize=(-fsanitize=address,undefined -fno-sanitize-recover=undefined)
libraries=("$folder"/src/libneap_{command,reader,core}.a)

[ -f "$folder/build.ninja" ] || CC=clang meson setup "$folder" -Db_sanitize=address,undefined -Db_lundef=false -Dwerror=false \
	-Doptimization=1 -Dc_args="-fsanitize=fuzzer-no-link -fno-sanitize-recover=undefined" >/dev/null
ninja -C "$folder" --quiet src/libneap_{command,reader,core}.a >"$folder/build.log" 2>&1 || { cat "$folder/build.log" >&2; exit 70; }
for target in "$@"; do
	clang -g -O1 -std=gnu17 -D_GNU_SOURCE -fsanitize=fuzzer "${sanitize[@]}" -Iinclude -Isrc -I. "fuzz/fuzz_$target.c" -o \
		"$folder/fuzz_$target" -Wl,--start-group "${libraries[@]}" -Wl,--end-group -ljansson -lfyaml -lsqlite3 -lzstd -lz -lm \
		-lpthread -ldl
done

# Seeds: small, good files of each kind.
seeds=$folder/seeds
rm -rf "$seeds" && mkdir -p "$seeds"/{fatbin,frame,message,page,record,result,sidecar,simulated,spec,stacks,trace,trainer,whole}
run=$(mktemp -d)
trap 'rm -rf "$run"' EXIT
XDG_RUNTIME_DIR=$run XDG_STATE_HOME=$run NEAP_DEVICE=sim NEAP_SIM=mem=256MiB,world=fuzz-$$ "$build/src/neap" run --quiet \
	--folder "$run/run" -- "$build/examples/charlm/charlm" --steps 2 --batch 2 --layers 1 --width 16 --context 8 >/dev/null 2>&1
python3 - "$run"/run/record.* "$seeds"/{record,trace}/recording <<'PYTHON'
# A recording with rings of 64 events: the first events of each ring.
import struct, sys
CAPACITY, EVENT, HEADER, COUNTERS = 64, 64, 16384, 40
whole = open(sys.argv[1], "rb").read()
journal, allocations, *written = struct.unpack_from("<4Q", whole, COUNTERS)
header = bytearray(whole[:HEADER])
struct.pack_into("<4Q", header, COUNTERS, CAPACITY, CAPACITY, *(min(count, CAPACITY) for count in written))
rings = [whole[at:at + CAPACITY * EVENT] for at in (HEADER, HEADER + journal * EVENT)]
for path in sys.argv[2:]:
    with open(path, "wb") as file:
        file.write(bytes(header) + b"".join(rings))
PYTHON
cp "$run/run/result.json" "$seeds/result/"
cp examples/series.yaml "$seeds/spec/"
cp examples/oom.log "$seeds/message/"
cat >"$seeds/message/jobs.log" <<'LOG'
the current vLLM instance can use total_gpu_memory (23.58GiB) x gpu_memory_utilization (0.90) = 21.22GiB
model weights take 21.21GiB; non_torch_memory takes 0.20GiB; PyTorch activation peak memory takes 0.37GiB
Available KV cache memory: -0.3 GiB
ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization` when initializing the engine.
slurmstepd: error: Detected 1 oom_kill event in StepId=7.batch. Some of the step tasks have been OOM Killed.
slurmstepd: error: StepId=7.batch exceeded memory limit (734003200 > 52428800), being killed
LOG
printf 'a 1 4096 0\nm evaluation\na 2 2097152 1\nr 2 0\nf 1\ns\ne\nf 2\ns\n' >"$seeds/trace/plain.txt"
printf '{"metrics": {"loss": 0.25, "accuracy": NaN}, "epoch": 3, "list": [1, -2e3, "x"]}' >"$seeds/sidecar/metrics"
printf 'neap-stacks 1\ttorch 2.15.0\tconf expandable_segments:True\n0\t/a.py\t1\tf\t/b.py\t2\tg\n' >"$seeds/stacks/two"
printf 'values cuBLAS cublasSgemm_v2 12 0 0\nworkspace cuDNN forward 3 0 209920\n' >"$seeds/simulated/two"
printf '12 model_5.pt\00013 optimizer_5.pt\000\000' >"$seeds/whole/together"
printf 'optimizer_epoch_5-00001-of-00002.safetensors' >"$seeds/whole/name"
printf 'epoch=3-val_loss=0.25.ckpt' >"$seeds/sidecar/name"
python3 - "$seeds/fatbin" <<'PYTHON'
# Two images of one cubin: a kernel, its code, and its name.
import pathlib, struct, sys
names = b"\0.text.first\0"
cubin = struct.pack("<16sHHIQQQIHHHHHH", b"\x7fELF\2", 2, 190, 1, 0, 0, 64 + 16 + 32, 0, 64, 0, 0, 64, 3, 1) + names.ljust(16, b"\0") + bytes(32)
for name, kind, flags, at, size in (0, 0, 0, 0, 0), (0, 3, 0, 64, len(names)), (1, 1, 2, 80, 32):
    cubin += struct.pack("<IIQQQQIIQQ", name, kind, flags, 0, at, size, 0, 0, 0, 0)
def image(flags, stored):
    return struct.pack("<HHIQIIIIQQQQ", 2, 257, 64, len(stored), len(stored), 0, 0, 90, 0, flags, 0, len(cubin)) + stored
images = image(0x11, cubin) + image(0x2011, b"\xf0\xff" + bytes([len(cubin) - 15 - 255]) + cubin)
pathlib.Path(sys.argv[1], "two").write_bytes(struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(images)) + images)
pathlib.Path(sys.argv[1], "cubin").write_bytes(cubin)
PYTHON
python3 - "$seeds/trace" <<'PYTHON'
import pickle, sys
frames = [{"filename": "train.py", "line": 3, "name": "forward"}, {"filename": "??", "line": 0, "name": "c10::empty"}]
def event(action, size=4096, addr=1 << 40):
    return {"action": action, "addr": addr, "size": size, "stream": 0, "time_us": 5, "frames": frames}
block = {"address": 1 << 40, "size": 4096, "requested_size": 4000, "state": "active_allocated", "frames": frames}
segment = {"device": 0, "address": 1 << 40, "total_size": 2 << 20, "allocated_size": 4096, "active_size": 4096,
           "requested_size": 4000, "stream": 0, "segment_type": "small", "segment_pool_id": (0, 0), "is_expandable": False,
           "frames": frames, "blocks": [block, {**block, "address": (1 << 40) + 4096, "size": (2 << 20) - 4096, "state": "inactive"}]}
oom = {"action": "oom", "device_free": 5, "size": 1 << 30, "stream": 0, "time_us": 9}
trace = [event("segment_alloc", 2 << 20), event("alloc"), event("free_requested"), event("free_completed"), event("alloc"), oom]
for number, snapshot in enumerate([
    {"segments": [segment], "device_traces": [trace, []], "allocator_settings": {"expandable_segments": True,
        "PYTORCH_CUDA_ALLOC_CONF": "max_split_size_mb:128", "max_split_size": -1},
     "external_annotations": [{"device": 0, "stage": "START", "name": "iter 1", "time_us": 4}]},
    {"segments": [segment, {**segment, "address": 1 << 41, "segment_pool_id": (0, 1), "stream": 7, "blocks": []}],
     "device_traces": [[{**event("segment_alloc", 2 << 20, 1 << 41), "stream": 7}, {**event("alloc", 4096, 1 << 41), "stream": 7},
                        {**oom, "stream": 7}]]},
    {"segments": [{**segment, "blocks": [{"size": 4096, "state": "active_allocated", "history": [{"real_size": 3}]}]}]},
]):
    for protocol in (2, 3, 4, 5):
        with open(f"{sys.argv[1]}/{number}.{protocol}.pickle", "wb") as file:
            pickle.dump(snapshot, file, protocol=protocol)
PYTHON

cp -r "$seeds/trace" "$seeds/analyze"
python3 tests/checkpoint/trainers.py lightning "$seeds/trainer/x.ckpt" val_loss:min /r/a.ckpt /r/a.ckpt=0.5 /r/b.ckpt=0.75
python3 tests/checkpoint/trainers.py transformers "$run/hf" accuracy true checkpoint-1 1=0.5 2=0.25
cp "$run/hf/checkpoint-2/trainer_state.json" "$run/hf/checkpoint-2/training_args.bin" "$seeds/trainer/"
unzip -p "$run/hf/checkpoint-2/training_args.bin" archive/data.pkl >"$seeds/trainer/arguments.pkl" 2>/dev/null || true
python3 - "$seeds/whole" <<'PYTHON'
import struct, sys, zipfile
header = b'{"w":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}'
with open(f"{sys.argv[1]}/x.safetensors", "wb") as file:
    file.write(struct.pack("<Q", len(header)) + header + bytes(8))
with zipfile.ZipFile(f"{sys.argv[1]}/x.pt", "w") as archive:
    archive.writestr("archive/data.pkl", "...")
PYTHON

failed=0
for target in "$@"; do
	mkdir -p "$folder/corpus/$target"
	printf '== %s: ' "$target"
	if "$folder/fuzz_$target" -max_total_time="$seconds" -timeout=20 -rss_limit_mb=4096 -max_len=32768 -print_final_stats=1 \
		-artifact_prefix="$folder/$target-" "$folder/corpus/$target" "$seeds/$target" >"$folder/$target.log" 2>&1; then
		sed -n 's/^stat::number_of_executed_units: *\([0-9]*\)/\1 inputs, none failed/p' "$folder/$target.log"
	else
		failed=1
		echo "FAILED, see $folder/$target.log"
	fi
done
exit "$failed"
