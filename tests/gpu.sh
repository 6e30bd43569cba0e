#!/usr/bin/env bash
# tests/gpu.sh: the tests that need a real GPU, in less than ten minutes, as any user, without a network:
#
#   PYTHON=/path/to/python tests/gpu.sh >section.md     a Python that has PyTorch with CUDA; default: python3
#   tests/gpu.sh --prepare                              on another machine: builds build-gpu, to be copied with the tree
#   tests/gpu.sh --dry-run                              the same tests without a GPU (PyTorch on the simulator)
#
# Builds libneap and the Python package with gcc, meson and ninja alone, and the command, where its libraries are there. A
# machine that lacks these takes build-gpu from --prepare, made where the same tree and the command's libraries are: that
# one needs nothing but the C library, of the same age or newer. NEAP_BUILD=FOLDER takes a build that is there.
#
# stdout: a section for docs/gpu-results.md. stderr: what goes on. Exit status: 0 all passed, 1 one failed, 69 there is no
# GPU, no PyTorch, or nothing to build with, here; 70 the build failed; 124 it took more than ten minutes.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 70
python=${PYTHON:-python3}
folder=${NEAP_BUILD:-build-gpu}
mode=${1-}

say() { printf 'tests/gpu.sh: %s\n' "$*" >&2; }
case $mode in
'' | --prepare | --dry-run) ;;
*)
	say "usage: tests/gpu.sh [--prepare|--dry-run]"
	exit 64
	;;
esac

# Where meson and ninja are not installed, Python's packages of them do: found, or fetched into build-gpu-tools.
find_tools() {
	local tools=$PWD/build-gpu-tools
	command -v cc >/dev/null || {
		say "no C compiler here (cc): install gcc, or bring build-gpu from 'tests/gpu.sh --prepare' on another machine"
		exit 69
	}
	PATH=$PATH:$(dirname "$(command -v "$python")"):$tools/bin
	export PATH
	command -v meson >/dev/null && command -v ninja >/dev/null && return
	say "fetching meson and ninja into $tools"
	PYTHONPATH='' timeout 120 "$python" -m pip install --quiet --disable-pip-version-check --retries 1 --target "$tools" meson ninja >&2 &&
		export PYTHONPATH=$tools${PYTHONPATH:+:$PYTHONPATH} && meson --version >/dev/null && ninja --version >/dev/null || {
		say "no meson and ninja here, and none could be fetched: bring build-gpu from 'tests/gpu.sh --prepare' on another machine"
		exit 69
	}
}

build() {
	local log
	find_tools
	if [ ! -f "$folder/build.ninja" ]; then
		log=$(mktemp)
		meson setup "$folder" -Dwerror=false -Ddebug=false "$@" >"$log" 2>&1 || {
			say "without the command: $(grep -m1 ERROR "$log")"
			rm -rf "$folder"
			meson setup "$folder" -Dwerror=false -Ddebug=false -Dcommand=disabled >"$log" 2>&1
		} || {
			cat "$log" >&2
			exit 70
		}
		rm -f "$log"
	fi
	ninja -C "$folder" >&2 || exit 70
}

if [ "$mode" = --prepare ]; then
	folder=build-gpu-work
	rm -rf build-gpu "$folder"
	build -Dprefer_static=true
	[ -x "$folder/src/neap" ] || say "the command is not in it"
	mkdir -p build-gpu/src build-gpu/sim/driver build-gpu/sim/runtime build-gpu/bench
	cp "$folder"/bench/gpu_driver build-gpu/bench/ # tools/gpu_day.sh needs these two
	find "$folder"/sim/runtime -maxdepth 1 -type f -executable -exec cp -t build-gpu/sim/runtime {} +
	cp "$folder"/src/libneap.so.0 build-gpu/src/
	cp "$folder"/sim/driver/*.so.1 build-gpu/sim/driver/
	mkdir -p build-gpu/sim/runtime # for --dry-run
	cp "$folder"/sim/runtime/*.so.*[0-9] build-gpu/sim/runtime/
	[ -x "$folder/src/neap" ] && cp "$folder"/src/neap build-gpu/src/
	cp -r "$folder"/python build-gpu/
	find build-gpu -name __pycache__ -prune -exec rm -rf {} +
	touch build-gpu/prepared
	rm -rf "$folder"
	say "build-gpu is ready ($(du -sh build-gpu | cut -f1)): copy it with the tree, then tests/gpu.sh"
	exit 0
fi

if [ "$mode" = --dry-run ]; then
	export NEAP_GPU_DRY=1 NEAP_DEVICE=sim NEAP_SIM="h100-80gb,world=gpu-dry-$$"
	trap 'rm -f /dev/shm/neap-sim-*-gpu-dry-$$' EXIT
else
	why=$("$python" -c 'import torch, sys
sys.exit(0 if torch.cuda.is_available() else "its PyTorch %s (CUDA %s) sees no device" % (torch.__version__, torch.version.cuda))' 2>&1) || {
		say "$python: $(tail -1 <<<"$why") (PYTHON=... names another Python)"
		exit 69
	}
	unset NEAP_DEVICE NEAP_SIM NEAP_SIM_PATH
	export CUDA_VISIBLE_DEVICES=${CUDA_VISIBLE_DEVICES-0} # one device; of several the first
	CUDA_VISIBLE_DEVICES=${CUDA_VISIBLE_DEVICES%%,*}
fi
[ -f "$folder/prepared" ] || [ -n "${NEAP_BUILD-}" ] || build
folder=$(cd "$folder" && pwd) || exit 70
if [ -x "$folder/src/neap" ]; then
	"$folder/src/neap" --version >/dev/null && export NEAP=$folder/src/neap || say "$folder/src/neap does not run here"
fi
launch=
if [ "$mode" = --dry-run ]; then # the launch folder loads the stand-ins before PyTorch looks for NVIDIA's libraries
	launch=$folder/python/launch:
	export NEAP_SIM_PATH=$folder/sim/driver NEAP_SIM_RUNTIME=$folder/sim/runtime
	why=$("$python" -c 'import sys; import importlib.util as i; sys.exit(0 if i.find_spec("torch") else "it has no PyTorch")' 2>&1) || {
		say "$python: $(tail -1 <<<"$why") (PYTHON=... names another Python)"
		exit 69
	}
fi
export PYTHONPATH=$launch$folder/python${PYTHONPATH:+:$PYTHONPATH} NEAP_SOURCE=$PWD PYTHONDONTWRITEBYTECODE=1
timeout -k 10 "${NEAP_GPU_SECONDS:-560}" "$python" tests/python/test_gpu.py
