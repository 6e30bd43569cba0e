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
import threading
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

    def connect(self, source="127.0.0.1"):
        return socket.create_connection((self.host, int(self.port)), timeout=20, source_address=(source, 0))

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
        with self.connect() as one:
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
    test_hosts(server)


def code_of(answer):
    return int(answer.split(b" ", 2)[1]) if answer else 0


def ask_host(server, *hosts, version="1.1", path="/api"):
    """The status code of a request with these Host headers, unchanged."""
    lines = "".join(f"Host: {host}\r\n" for host in hosts)
    return code_of(server.raw(f"GET {path} HTTP/{version}\r\n{lines}Connection: close\r\n\r\n".encode("latin-1")))


def test_hosts(server):
    """On the loopback address a request must name this machine."""
    port = server.port
    name = socket.gethostname()
    good = ("localhost", f"localhost:{port}", f"127.0.0.1:{port}", "[::1]:1", "LocalHost:80", "localhost.", f"localhost.:{port}", "localhost:",
            "127.9.8.7", "[::1]", "[0:0:0:0:0:0:0:1]:9401", " localhost", name, f"{name.upper()}.:{port}", name.split(".", maxsplit=1)[0])
    bad = ("evil.example", "evil.example:80", "localhost.evil.example", "127.0.0.1.evil.example", "1.2.3.4", "localhost:@evil.com",
           f"localhost:{port}@evil.com", "localhost@evil.com", "evil.com#localhost", "localhost:80:80", "localhost:80.evil.com", "localhost:65536",
           "localhost:-1", "localhost:99999999999999999999", "localhost..", ".localhost", "", ".", ":", f":{port}", "[::1", "::1", f"::1:{port}",
           "[::1]x", "[::1]evil.com", "[::1]:80@evil.com", "[localhost]", "[]", "[", "[]:80", "127.0.0.1:80:1", "127.0.0.256", "127.1", "2130706433",
           "localhost,evil.com", "localhost evil.com", "evil.com localhost", "localhost/../evil.com", "local\xadhost", "[fe80::1%25lo]", "x" * 300,
           "0.0.0.0", "[::]")
    for host in good:
        check(ask_host(server, host) == 200, f"Host: {host}")
    for host in bad:
        check(ask_host(server, host) == 403, f"Host: {host}: {ask_host(server, host)}")
    for hosts in ((), ("localhost", "localhost"), ("localhost", "evil.com"), ("evil.com", "localhost")):
        check(ask_host(server, *hosts) == 400, f"Host headers: {hosts}")
    check(ask_host(server, version="1.0") == 200, "HTTP/1.0 without a Host, as no browser asks")
    check(ask_host(server, "evil.com", version="1.0") == 403, "HTTP/1.0 with another one")
    check(ask_host(server, "localhost", path="http://evil.com/api") == 404, "a proxy's request")
    forwarded = {"X-Forwarded-Host": "localhost", "X-Host": "localhost", "Forwarded": "host=localhost"}
    check(server.ask(Host="evil.com", **forwarded)[0] == 403, "what a proxy says makes no name good")
    check(server.ask(**{"X-Forwarded-Host": "evil.com"})[0] == 200, "and none bad")


def test_bounds(server):
    check(re.match(rb"HTTP/1.1 4\d\d", server.raw(b"GET /" + b"a" * 100000 + b" HTTP/1.1\r\n\r\n") or b"HTTP/1.1 414"), "a long path")
    try:
        server.raw(b"GET / HTTP/1.1\r\nHost: localhost\r\n" + b"X: " + b"y" * 1000000 + b"\r\n\r\n")
    except ConnectionError:
        pass
    server.raw(b"\0\xff nonsense\r\n\r\n")


def served(server):
    try:
        return server.ask()[0] == 200
    except (OSError, http.client.HTTPException):
        return False


def test_crowd(server):
    """Clients of one address that take every place do not take those of another address, and do not keep new clients
    out."""
    def begin(source="127.0.0.1"):
        crowd.append(server.connect(source))
        crowd[-1].sendall(b"GET /api HTTP/1.1\r\n")
        return crowd[-1]

    def finish(one):
        one.sendall(b"Host: localhost\r\n\r\n")
        answer = http.client.HTTPResponse(one)
        answer.begin()
        answer.read()
        return answer.status

    crowd = []
    for _ in range(70):
        begin()
    one = begin()
    for _ in range(40):
        begin()
    check(served(server), "a new client, after which the server has seen all the others")
    check(finish(one) == 200, "of one address, the connection that has waited longest loses its place")
    for _ in range(40):
        begin()
    check(served(server), "another one")
    one.sendall(b"GET /api HTTP/1.1\r\n")
    check(finish(one) == 200, "which waits from its last request on")
    for number in range(70):
        begin(f"127.0.1.{number}")
    one = begin()
    for _ in range(3):
        begin()
    check(served(server), "another one")
    check(finish(one) == 200, "the newest are spared")
    early = http.client.HTTPConnection(server.host, int(server.port), timeout=20)
    early.request("GET", "/metrics")
    early.getresponse().read()
    kept = early.sock
    for _ in range(200):
        begin("127.0.0.2")
    check(len(list(pathlib.Path(f"/proc/{server.process.pid}/fd").iterdir())) < 110, "descriptors are bounded")
    for _ in range(20):
        check(served(server), "a client is served beside 200 slow ones")
    early.request("GET", "/metrics")
    check(early.getresponse().status == 200 and early.sock is kept, "a connection of another address keeps its place")
    early.close()
    same = [server.connect() for _ in range(200)]
    for one in same[::2]:
        one.sendall(b"G")
    for _ in range(20):
        check(served(server), "and beside 200 slow and silent ones of its own address")
    for one in crowd + same:
        one.close()
    check(served(server), "and afterwards")


def again_and_again(server, source, stop):
    """A client: until `stop` is set, it connects, sends half a request, and waits until the server closes the connection."""
    while not stop.is_set():
        try:
            with server.connect(source) as one:
                one.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\nX: ")
                one.settimeout(0.2)
                while not stop.is_set():
                    try:
                        if one.recv(1) == b"":
                            break
                    except TimeoutError:
                        one.sendall(b"a")
        except OSError:
            pass


def never_reads(server, source, stop):
    """A client that asks for many answers and reads none."""
    while not stop.is_set():
        try:
            with server.connect(source) as one:
                one.sendall(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n" * 300)
                stop.wait(0.5)
        except OSError:
            pass


ASK = """
import http.client, sys
for _ in range(int(sys.argv[3])):
    one = http.client.HTTPConnection(sys.argv[1], int(sys.argv[2]), timeout=60)
    one.request("GET", "/api")
    assert one.getresponse().status == 200
    one.close()
"""


def test_storm(server, what, clients, sources, asked):
    """Clients take places as fast as they can: another client, in its own process, gets every answer."""
    stop = threading.Event()
    threads = [threading.Thread(target=what, args=(server, f"127.0.0.{1 + number % sources}", stop)) for number in range(clients)]
    for one in threads:
        one.start()
    try:
        run = subprocess.run([sys.executable, "-c", ASK, server.host, server.port, str(asked)], capture_output=True, text=True, check=False)
        check(run.returncode == 0, f"a client beside {clients} of {what.__name__}: {run.stderr}")
    finally:
        stop.set()
        for one in threads:
            one.join()


class Slow(threading.Thread):
    """A request that comes byte by byte and so is never silent. Returns whether the server closed it."""

    def __init__(self, server):
        super().__init__()
        self.server = server
        self.ended = False
        self.start()

    def run(self):
        stop = time.monotonic() + 120
        with self.server.connect() as one:
            one.settimeout(0.5)
            while not self.ended and time.monotonic() < stop:
                try:
                    one.sendall(b"G")
                    self.ended = one.recv(1) == b""
                except TimeoutError:
                    pass
                except OSError:
                    self.ended = True


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
    for words in ("", "a b", "evil.com:80", "[::1", "@x", "x" * 300):
        fails(64, "--host", words)
    names = ("gpu01.Example.com.", "alias", "2001:db8::7", "192.0.2.7")
    server = Server(neap, environment, "--listen", "0.0.0.0:0", *(word for name in names for word in ("--host", name)))
    for host in ("anything.example", "gpu02.example.com", "192.0.2.8", "localhost:@evil.com", "0.0.0.0"):
        check(ask_host(server, host) == 403, f"an open address: Host: {host}")
    for host in ("gpu01.example.com", "alias:80", "[2001:DB8:0::7]:9401", "192.0.2.7:9401", "localhost", "127.0.0.1", socket.gethostname()):
        check(ask_host(server, host) == 200, f"an open address: Host: {host}")
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
        beside = Server(neap, environment)
        slow = Slow(beside)
        try:
            test_answers(server, holder, neap, environment)
            test_refusals(server)
            test_bounds(server)
            test_crowd(server)
            for what in (again_and_again, never_reads):
                test_storm(server, what, clients=60, sources=1, asked=20)
            test_dashboard(server)
            test_promtool(server)
            if LONG:
                for what in (again_and_again, never_reads):
                    for clients, sources in ((150, 1), (150, 200), (400, 1), (400, 4)):
                        test_storm(server, what, clients, sources, asked=500)
                test_prometheus(server, place)
                test_load(server)
            check(server.end() == 0, "Ctrl-C ends it with 0")
            test_lost_device(neap, environment, place)
            test_addresses(neap, environment)
            slow.join()
            check(slow.ended, "a request that never ends was ended")
            check(beside.end() == 0, "the end")
        finally:
            for process in (holder, *Server.started):
                if process.poll() is None:
                    process.kill()
                    process.wait()
            pathlib.Path(f"/dev/shm/neap-sim-{os.getuid()}-{world}").unlink(missing_ok=True)


if __name__ == "__main__":
    main()
