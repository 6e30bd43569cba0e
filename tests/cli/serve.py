#!/usr/bin/env python3
"""neap serve over HTTP: what it answers and refuses, what a client can take, how it ends; its metrics before promtool where that
is installed. NEAP_LONG=1 also has a Prometheus scrape it, and clients ask as fast as they can.

    serve.py NEAP HOLD
"""
import concurrent.futures
import http.client
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

LONG = os.environ.get("NEAP_LONG") == "1"


def check(good, what):
    if not good:
        raise SystemExit(f"serve.py: {what}")


def until(condition, what, limit=30):
    end = time.monotonic() + limit
    while not condition():
        check(time.monotonic() < end, f"not within {limit} s: {what}")
        time.sleep(0.02)


class Server:
    started = []  # processes, to be ended whatever fails

    def __init__(self, neap, environment, *words):
        self.process = subprocess.Popen([neap, "serve", "--every", "100ms", "--listen", "127.0.0.1:0", *words], env=environment,
                                        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.started.append(self.process)
        line = self.process.stdout.readline()
        check(line.startswith("Serving on http://"), f"{line}{self.process.stderr.read() if not line else ''}")
        self.address = line.split()[2].rstrip("/")
        self.host, self.port = self.address.removeprefix("http://").rsplit(":", 1)

    def get(self, path):
        with urllib.request.urlopen(self.address + path, timeout=20) as answer:
            return answer.read().decode()

    def ask(self, method="GET", path="/api", **headers):
        """The code and headers of one request."""
        connection = http.client.HTTPConnection(self.host, int(self.port), timeout=20)
        connection.request(method, path, headers=headers, body="x=1" if method == "POST" else None)
        answer = connection.getresponse()
        body = answer.read()
        connection.close()
        return answer.status, dict(answer.getheaders()), body

    def raw(self, data):
        with socket.create_connection((self.host, int(self.port)), timeout=20) as one:
            one.sendall(data)
            return one.makefile("rb").read(4096)

    def resident_kib(self):
        status = pathlib.Path(f"/proc/{self.process.pid}/status").read_text(encoding="ascii")
        return int(re.search(r"VmRSS:\s+(\d+)", status)[1])

    def end(self, number=signal.SIGINT):
        self.process.send_signal(number)
        code = self.process.wait(20)
        check(self.process.stdout.read() == "", "nothing more on stdout")
        return code


def samples(text):
    """The metrics as {name and labels: value}."""
    return {line.rsplit(" ", 1)[0]: float(line.rsplit(" ", 1)[1]) for line in text.splitlines() if not line.startswith("#")}


def test_answers(server, holder, neap, environment):
    until(lambda: "} 104857600" in server.get("/metrics"), "what the process took is in the metrics")
    device = json.loads(server.get("/api"))["devices"][0]
    labels = f'{{gpu="0",UUID="{device["uuid"]}"}}'
    until(lambda: samples(server.get("/metrics"))["neap_fb_allocated_bytes" + labels] == 100 << 20, "allocated")
    found = samples(server.get("/metrics"))
    check(found["neap_fb_total_bytes" + labels] == 256 << 20, "total")
    parts = ["reserved", "context", "allocated", "cached", "not_attached", "unexplained", "free"]
    check(sum(found[f"neap_fb_{part}_bytes" + labels] for part in parts) == 256 << 20, "the parts sum to the total")
    mine = [name for name in found if name.startswith("neap_process_allocated_bytes{") and f'pid="{holder.pid}"' in name]
    check(len(mine) == 1 and found[mine[0]] == 100 << 20 and 'run="a run"' in mine[0], f"of the process: {mine}")
    check(found[f'neap_run_allocated_bytes{{gpu="0",UUID="{device["uuid"]}",run="a run"}}'] == 100 << 20, "of the run")
    printed = json.loads(subprocess.run([neap, "info", "--json"], env=environment, check=True, capture_output=True).stdout)
    served = json.loads(server.get("/api"))
    for document in (printed, served):
        del document["time_ns"]
        for process in document["processes"]:
            del process["run_time_ns"]
    check(printed == served, "/api is what neap info --json prints")
    history = json.loads(server.get("/api/history"))
    row = dict(zip(history["columns"], history["devices"][0]["points"][-1]))
    check(row["allocated"] == 100 << 20 and row["free"] == device["ledger"]["free"], f"the history: {row}")
    holder.kill()
    holder.wait()
    until(lambda: samples(server.get("/metrics"))["neap_fb_allocated_bytes" + labels] == 0, "the memory is free again")


def test_refusals(server):
    code, headers, _ = server.ask(path="/")
    check(code == 200 and "default-src 'none'" in headers["Content-Security-Policy"], "a content policy")
    check(headers["Cache-Control"] == "no-store" and headers["X-Content-Type-Options"] == "nosniff", "no cache, no sniffing")
    check("Access-Control-Allow-Origin" not in headers, "no other site may read it")
    code, headers, body = server.ask("HEAD")
    check(code == 200 and body == b"" and int(headers["Content-Length"]) > 100, "HEAD")
    for method in ("POST", "PUT", "DELETE", "OPTIONS", "PATCH"):
        check(server.ask(method)[0] == 405, method)
    for path in ("/nothing", "/../etc/passwd", "//", "/metrics/", "/%2e%2e/x"):
        check(server.ask(path=path)[0] == 404, path)
    for host in ("evil.example", "evil.example:80", "localhost.evil.example", "127.0.0.1.evil.example", "1.2.3.4"):
        check(server.ask(Host=host)[0] == 403, f"Host: {host}")
    for host in ("localhost", f"localhost:{server.port}", f"127.0.0.1:{server.port}", "[::1]:1"):
        check(server.ask(Host=host)[0] == 200, f"Host: {host}")
    check(b" 200 " in server.raw(b"GET /api HTTP/1.0\r\n\r\n")[:20], "without a Host, as no browser asks")


def test_bounds(server):
    check(re.match(rb"HTTP/1.1 4\d\d", server.raw(b"GET /" + b"a" * 100000 + b" HTTP/1.1\r\n\r\n") or b"HTTP/1.1 414"), "a long path")
    try:
        server.raw(b"GET / HTTP/1.1\r\nHost: localhost\r\n" + b"X: " + b"y" * 1000000 + b"\r\n\r\n")
    except ConnectionError:
        pass
    server.raw(b"\0\xff nonsense\r\n\r\n")
    # Clients that say nothing take every place. They lose it, and the next client is served.
    silent = []
    for _ in range(200):
        silent.append(socket.create_connection((server.host, int(server.port)), timeout=20))
    check(len(list(pathlib.Path(f"/proc/{server.process.pid}/fd").iterdir())) < 100, "descriptors are bounded")
    until(lambda: served(server), "a client is served beside 200 silent ones", 60)
    for one in silent:
        one.close()
    until(lambda: served(server), "a client is served afterwards")


def served(server):
    try:
        return server.ask()[0] == 200
    except (OSError, http.client.HTTPException):
        return False


def test_slow(server):
    """A request that comes byte by byte is never silent, and yet ends."""
    begun = time.monotonic()
    with socket.create_connection((server.host, int(server.port)), timeout=20) as one:
        try:
            for _ in range(200):
                one.sendall(b"G")
                time.sleep(0.5)
        except OSError:
            pass
    check(time.monotonic() - begun < 90, "a request that never ends was ended")


def test_lost_device(neap, environment, place):
    lost = pathlib.Path(place) / "lost"
    server = Server(neap, dict(environment, NEAP_SIM_LOST=str(lost)))
    lost.touch()
    until(lambda: samples(server.get("/metrics")).get("neap_up") == 0, "neap_up 0")
    check("gpu=" not in server.get("/metrics"), "no stale figures")
    code, _, body = server.ask()
    check(code == 503 and "lost" in json.loads(body)["error"], f"why: {body}")
    lost.unlink()
    until(lambda: samples(server.get("/metrics")).get("neap_up") == 1, "neap_up 1 again")
    check(server.end() == 0, "the end")
    check("the devices can be read again" in server.process.stderr.read(), "the log")


def test_addresses(neap, environment):
    def fails(code, *words):
        run = subprocess.run([neap, "serve", *words], env=environment, capture_output=True, text=True, timeout=60)
        check(run.returncode == code, f"{words}: {run}")
        return run.stderr

    server = Server(neap, environment)
    check("Address already in use" in fails(75, "--listen", f"127.0.0.1:{server.port}"), "a port that is taken")
    for words in ("x", "127.0.0.1", ":9401", "127.0.0.1:", "127.0.0.1:70000", "::1:80", "[::1]", "[]:1", "host.example:1"):
        fails(64, "--listen", words)
    fails(64, "--every", "1ms")
    check(server.end(signal.SIGTERM) == 143, "SIGTERM")
    server = Server(neap, environment, "--listen", "0.0.0.0:0")
    check(server.ask(Host="anything.example")[0] == 200, "an open address answers to any name")
    check(server.end() == 0, "the end")
    check("can read the users and command lines" in server.process.stderr.read(), "and warns")


def test_dashboard(server):
    """Every metric that the dashboard and the rules ask for is served, with the labels they use."""
    folder = pathlib.Path(__file__).resolve().parents[2] / "docs" / "grafana"
    dashboard = json.loads((folder / "neap.json").read_text(encoding="utf-8"))
    text = json.dumps([target["expr"] for panel in dashboard["panels"] for target in panel["targets"]])
    text += (folder / "alerts.yml").read_text(encoding="utf-8")
    asked = set(re.findall(r"neap_[a-z_]+", text))
    served_now = set(re.findall(r"^# TYPE (\S+)", server.get("/metrics"), re.MULTILINE))
    check(len(asked) > 10 and asked <= served_now, f"asked for and not served: {asked - served_now}")
    check(len({panel["id"] for panel in dashboard["panels"]}) == len(dashboard["panels"]), "panels have a number each")


def test_promtool(server):
    promtool = shutil.which("promtool")
    if not promtool:
        print("no promtool: the metrics are not checked by it")
        return
    run = subprocess.run([promtool, "check", "metrics"], input=server.get("/metrics"), capture_output=True, text=True, check=False)
    check(run.returncode == 0 and run.stdout + run.stderr == "", f"promtool: {run.stdout}{run.stderr}")
    rules = pathlib.Path(__file__).resolve().parents[2] / "docs" / "grafana" / "alerts.yml"
    run = subprocess.run([promtool, "check", "rules", rules], capture_output=True, text=True, check=False)
    check(run.returncode == 0, f"promtool: {run.stdout}{run.stderr}")
    run = subprocess.run([promtool, "test", "rules", pathlib.Path(__file__).parent / "alerts_test.yml"], capture_output=True, text=True,
                         check=False)
    check(run.returncode == 0, f"promtool: {run.stdout}{run.stderr}")


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def test_prometheus(server, place):
    prometheus = shutil.which("prometheus")
    if not prometheus:
        print("no prometheus: nothing scrapes it")
        return
    port = free_port()
    config = pathlib.Path(place) / "prometheus.yml"
    rules = pathlib.Path(__file__).resolve().parents[2] / "docs" / "grafana" / "alerts.yml"
    config.write_text(json.dumps({"global": {"scrape_interval": "1s", "evaluation_interval": "1s"}, "rule_files": [str(rules)],
                                  "scrape_configs": [{"job_name": "neap", "static_configs": [
                                      {"targets": [f"{server.host}:{server.port}"]}]}]}), encoding="ascii")
    with open(pathlib.Path(place) / "prometheus.log", "wb") as log:
        process = subprocess.Popen([prometheus, f"--config.file={config}", f"--storage.tsdb.path={place}/data",
                                    f"--web.listen-address=127.0.0.1:{port}"], stdout=log, stderr=log)

    def query(expression):
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/api/v1/query?query={expression}", timeout=20) as answer:
                return [one["value"][1] for one in json.load(answer)["data"]["result"]]
        except OSError:
            return []

    try:
        until(lambda: query("neap_up") == ["1"], "a Prometheus has scraped it", 60)
        until(lambda: query("up") == ["1"], "and found it up")
        check(query("count(neap_fb_total_bytes)") == ["2"], "both devices")
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/api/v1/rules", timeout=20) as answer:
            groups = json.load(answer)["data"]["groups"]
        until(lambda: groups and all(rule["health"] in ("ok", "unknown") for group in groups for rule in group["rules"]), "the rules work")
    finally:
        process.terminate()
        process.wait(30)


def test_load(server):
    def work(seconds):
        connection = http.client.HTTPConnection(server.host, int(server.port), timeout=20)
        asked = 0
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            connection.request("GET", ("/metrics", "/api", "/api/history", "/")[asked % 4])
            check(connection.getresponse().read() != b"", "an answer")
            asked += 1
        return asked

    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        list(pool.map(work, [3] * 16))
        before = server.resident_kib()
        begun = time.monotonic()
        asked = sum(pool.map(work, [15] * 16))
        seconds = time.monotonic() - begun
    after = server.resident_kib()
    print(f"{asked / seconds:.0f} requests a second from 16 clients; memory {before} KiB, then {after} KiB")
    check(after < before + 4096, "memory is flat under load")


def main():
    neap, hold = sys.argv[1:3]
    with tempfile.TemporaryDirectory(prefix="neap-serve-") as place:
        world = f"serve-{os.getpid()}"
        environment = dict(os.environ, NEAP_SIM=f"mem=256MiB,context=8MiB,reserved=2MiB,gpus=2,world={world}", XDG_RUNTIME_DIR=place,
                           XDG_STATE_HOME=place, HOME=place)
        environment.pop("LD_LIBRARY_PATH", None)
        holder = subprocess.Popen([hold, "--for", "600000", "100M"], env=dict(environment, NEAP_ATTACH="1", NEAP_RUN_ID="a run"))
        server = Server(neap, environment)
        try:
            test_answers(server, holder, neap, environment)
            test_refusals(server)
            test_bounds(server)
            test_dashboard(server)
            test_promtool(server)
            if LONG:
                test_slow(server)
                test_prometheus(server, place)
                test_load(server)
            check(server.end() == 0, "Ctrl-C ends it with 0")
            test_lost_device(neap, environment, place)
            test_addresses(neap, environment)
        finally:
            for process in (holder, *Server.started):
                if process.poll() is None:
                    process.kill()
                    process.wait()
            pathlib.Path(f"/dev/shm/neap-sim-{os.getuid()}-{world}").unlink(missing_ok=True)


if __name__ == "__main__":
    main()
