#!/usr/bin/env bash
# bench/cost.sh [SECONDS]: what neap itself costs on a machine with eight simulated devices and 64 processes that hold
# memory there, half of them attached: `neap info` from its start to its end (elapsed time and processor time), and
# the share of one core that `neap top` and `neap serve` take at one sample a second, measured for SECONDS (20) each.
# Targets: 2 ms, 1 %, 1 %. Then what a person waits for elsewhere (waits.py). The simulator's NVML is part of the
# figures. BUILD says where neap is built (build).
set -euo pipefail
cd "$(dirname "$0")/.."
build=$(realpath "${BUILD:-build}")
folder=$(mktemp -d)
world=cost-$$
trap 'kill $(jobs -p) 2>/dev/null || true; wait 2>/dev/null || true; rm -rf "$folder" /dev/shm/*"$world"*' EXIT
export NEAP_DEVICE=sim NEAP_SIM_PATH=$build/sim/driver NEAP_SIM="mem=4GiB,gpus=8,world=$world" LC_ALL=C.UTF-8 TERM=xterm
export XDG_RUNTIME_DIR=$folder XDG_STATE_HOME=$folder

for n in $(seq 64); do
	CUDA_VISIBLE_DEVICES=$((n % 8)) NEAP_ATTACH=$((n % 2)) "$build/tests/cli/hold" --for 3600000 $((20 + n))M >"$folder/log" 2>&1 &
done
until [ "$("$build/src/neap" info --csv | cut -d, -f3 | grep -c '[0-9]')" -eq 64 ]; do sleep 0.2; done

python3 - "$build/src/neap" "${1:-20}" <<'PYTHON'
import os, pty, resource, signal, statistics, subprocess, sys, threading, time, urllib.request

neap, seconds = sys.argv[1], float(sys.argv[2])
tick = os.sysconf("SC_CLK_TCK")


def spent(pid):
    """Seconds of a processor, from the scheduler's nanoseconds of every thread where the kernel has them."""
    total = 0
    for task in os.listdir(f"/proc/{pid}/task"):
        try:
            with open(f"/proc/{pid}/task/{task}/schedstat", encoding="ascii") as file:
                total += int(file.read().split()[0])
        except FileNotFoundError:
            with open(f"/proc/{pid}/task/{task}/stat", encoding="ascii") as file:
                total += sum(map(int, file.read().rsplit(")", 1)[1].split()[11:13])) * 10**9 // tick
    return total / 1e9


def print_share(name, pid, after=3):
    time.sleep(after)  # the start is not part of the rate
    begin, cpu = time.monotonic(), spent(pid)
    time.sleep(seconds)
    share = 100 * (spent(pid) - cpu) / (time.monotonic() - begin)
    print(f"{name:34} {share:6.2f} % of a core   target 1 %: {'met' if share <= 1 else 'missed'}", flush=True)


def cold(*words):
    def one(command):
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        begin = time.perf_counter()
        subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
        took = time.perf_counter() - begin
        now = resource.getrusage(resource.RUSAGE_CHILDREN)
        return 1000 * took, 1000 * (now.ru_utime + now.ru_stime - used.ru_utime - used.ru_stime)
    pairs = [(one([neap, *words]), one(["/bin/true"])) for _ in range(201)]
    whole, spent = (statistics.median(ours[i] for ours, _ in pairs) for i in (0, 1))
    true, true_spent = (statistics.median(theirs[i] for _, theirs in pairs) for i in (0, 1))
    print(f"neap {' '.join(words):13} {whole:6.2f} ms, {spent:.2f} ms of a processor (/bin/true {true:.2f} and {true_spent:.2f})   "
          f"target 2 ms: {'met' if whole <= 2 else 'missed'}", flush=True)


cold("info")
cold("info", "--json")
pid, terminal = pty.fork()
if pid == 0:
    os.environ.update(LINES="24", COLUMNS="80")
    os.execv(neap, [neap, "top"])
shown = [0]


def drain():
    try:
        while data := os.read(terminal, 65536):
            shown[0] += len(data)
    except OSError:
        pass


threading.Thread(target=drain, daemon=True).start()
print_share("neap top, one look a second", pid)
if not shown[0]:
    sys.exit("neap top drew nothing")
os.kill(pid, signal.SIGINT)
os.waitpid(pid, 0)

server = subprocess.Popen([neap, "serve", "--listen", "127.0.0.1:0"], stdout=subprocess.PIPE, text=True)
address = server.stdout.readline().split()[2]
print_share("neap serve, one look a second", server.pid)
stop = threading.Event()


def scrape():
    while not stop.wait(1):
        urllib.request.urlopen(address + "metrics").read()


threading.Thread(target=scrape).start()
print_share("neap serve, and a scrape a second", server.pid, 1)
stop.set()
server.send_signal(signal.SIGINT)
server.wait()
PYTHON
kill $(jobs -p) || true
python3 bench/waits.py "$build"
