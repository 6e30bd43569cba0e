"""An estimate changes nothing that the user has: a hostile program, and every system call made to fail.

    view.py NEAP FAILING_CALLS_LIBRARY

The program writes, cuts, renames, deletes, links, maps and forks in a folder, /tmp, /dev/shm, the home and other file
systems. Each time the folder is the same afterwards byte for byte, with its times, modes, owners and attributes: in a
view of mounts (as root, and as an ordinary user), under Landlock, where neither is allowed (nothing runs), after each
kind of death, and when each isolating system call fails, alone and with all later ones. With --in-place the folder
does change.
"""

import ctypes
import hashlib
import json
import os
import pathlib
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
import unittest

NEAP, FAILING_CALLS = (os.path.abspath(argument) for argument in sys.argv[1:3])
LONG = os.environ.get("NEAP_LONG") == "1"
OUTSIDER = 65534
NUMBERS = {"x86_64": {"unshare": 272, "landlock": 444}, "aarch64": {"unshare": 97, "landlock": 444}}.get(os.uname().machine)

PROGRAM = r"""
import json, mmap, os, shutil, socket, sqlite3, subprocess, sys
done = {}
def attempt(name):
    def run(function):
        try:
            function()
            done[name] = "done"
        except Exception as problem:
            done[name] = repr(problem)
    return run
def write(path):
    with open(path, "w") as file:
        file.write("changed")
    assert open(path).read() == "changed"
here = os.getcwd()
attempt("descriptor")(lambda: os.write(int(os.environ.get("DESCRIPTOR", "99")), b"changed"))
for name in ("model.pt", "new.pt", here + "/absolute.pt", "link", "/dev/shm/neaptest-HERE", "/tmp/neaptest-HERE", os.path.expanduser("~/neaptest-HERE")):
    attempt("write " + name)(lambda: write(name.replace("HERE", str(os.getppid()))))
attempt("cut")(lambda: os.truncate("long", 1))
attempt("cut when opened")(lambda: os.close(os.open("long", os.O_RDONLY | os.O_TRUNC)))
attempt("mode")(lambda: os.chmod("mode", 0o600))
attempt("time")(lambda: os.utime("mode", (1, 1)))
attempt("attribute")(lambda: os.setxattr("mode", "user.neaptest", b"1"))
attempt("rename")(lambda: os.rename("old", "renamed"))
attempt("exchange")(lambda: os.replace("model.pt", "other"))
attempt("remove")(lambda: os.remove("removed"))
attempt("remove folder")(lambda: shutil.rmtree("folder"))
attempt("make folder again")(lambda: os.makedirs("folder/new"))
attempt("link")(lambda: os.link("linked", "second"))
attempt("write by link")(lambda: write("second"))
@attempt("map")
def _():
    with open("mapped", "r+b") as file:
        mmap.mmap(file.fileno(), 0)[0:4] = b"XXXX"
@attempt("database")
def _():
    base = sqlite3.connect("base.sqlite")
    base.execute("create table t(x)")
    base.commit()
attempt("shell")(lambda: subprocess.check_call("echo changed > shell.txt && touch mode", shell=True))
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        while True:
            open(here + "/model.pt", "a").write("daemon")
    os._exit(0)
print(json.dumps(done))
"""

# Asks for a view for a process that it forks, as python/neap/_shared_runs.py does for another GPU.
FORKING = r"""
import json, os, shutil, sys
from neap import _shared_runs
run = os.environ["NEAP_RUN_DIR"]
def write(name, text):
    with open(name, "w") as file:
        file.write(text)
def seen():
    names = sorted(os.listdir("."))
    return [names, {name: open(name).read() for name in ("model.pt", "new.pt", "log", "moved/file") if os.path.exists(name)}]
def harm(held):
    for path in ("", "/work/model.pt", os.getcwd() + "/model.pt"):
        for up in ("", "/..", "/../.."):
            try:
                write(held + up + path, "harm")
            except OSError:
                pass
write("model.pt", "by the first")
log = open("log", "w")
print("begun", file=log, flush=True)
os.remove("removed")
shutil.move("folder/deep", "moved")
os.mkdir(run + "/other.0")
view, maker = _shared_runs._ask_for_view(run, "other.0")
before = seen()
for number in os.listdir(f"/proc/{maker}/fd"):
    harm(f"/proc/{maker}/fd/{number}")
assert seen() == before
try:
    more, none = _shared_runs._ask_for_view(run, "other.1")
    assert not none
    more.close()
except ConnectionError:
    pass
_shared_runs._State.opened = _shared_runs._opened()
print("the first", file=log, flush=True)
write("new.pt", "by the first, later")
if os.fork() == 0:
    view.close()
    _shared_runs._join_view(maker)
    _shared_runs._open_again()
    again = seen()
    print("the other", file=log, flush=True)
    print(json.dumps([before, again, open("log").read(), open("/proc/self/status").read().split("CapPrm:")[1].split()[0]]), flush=True)
    write("new.pt", "by the other")
    write("removed", "by the other")
    write(run + "/other.0/findings", "for real")
    os._exit(0)
os.wait()
view.shutdown(1)
view.recv(1)
print(json.dumps([seen(), json.load(open(run + "/other.0/view.json"))["files"], json.load(open(run + "/other.0/view.json"))["deleted"],
                  json.load(open(run + "/other.0/view.json"))["limit"]]))
"""


def deny(*names: str) -> None:
    """Runs in the child: from now on these system calls fail with EPERM."""
    code = [(0x20, 0, 0, 0)]
    for name in names:
        code += [(0x15, 0, 1, NUMBERS[name]), (0x06, 0, 0, 0x00050001)]
    code += [(0x06, 0, 0, 0x7FFF0000)]
    text = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *item) for item in code))
    program = ctypes.create_string_buffer(struct.pack("@HP", len(code), ctypes.addressof(text)))
    library = ctypes.CDLL(None, use_errno=True)
    if library.prctl(38, 1, 0, 0, 0) or library.prctl(22, 2, program, 0, 0):
        os._exit(99)


def picture(folder: pathlib.Path) -> "dict[str, object]":
    """Everything that can be known about a folder, except the times of access."""
    items: dict[str, object] = {}
    for path in [folder, *sorted(folder.rglob("*"))]:
        about = path.lstat()
        content = os.readlink(path) if path.is_symlink() else hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""
        attributes = os.listxattr(path, follow_symlinks=False)
        items[str(path.relative_to(folder))] = (about.st_mode, about.st_uid, about.st_gid, about.st_size, about.st_mtime_ns,
                                                about.st_ctime_ns, about.st_nlink, about.st_ino, content, attributes)
    return items


class View(unittest.TestCase):
    user = None  # another user, as whom the command runs
    python = sys.executable

    def setUp(self) -> None:
        holder = tempfile.TemporaryDirectory(prefix="neap-view-")
        self.addCleanup(holder.cleanup)
        self.root = pathlib.Path(holder.name)
        for left in self.strays():  # of a run that failed
            left.unlink()
        self.folder = self.root / "work"
        self.runs = self.root / "runs"
        (self.folder / "folder" / "deep").mkdir(parents=True)
        for name in ("model.pt", "other", "long", "mode", "old", "removed", "linked", "mapped", "folder/deep/file", "pointed"):
            (self.folder / name).write_text(f"the user's {name}")
        (self.folder / "link").symlink_to("pointed")
        os.link(self.folder / "linked", self.folder / "linked too")
        (self.root / "harm.py").write_text(PROGRAM)
        (self.root / "home").mkdir()
        if self.user is not None:
            for path in [self.root, *self.root.rglob("*")]:
                os.lchown(path, self.user, self.user)
        self.before = picture(self.folder)

    def environment(self, **more: str) -> "dict[str, str]":
        kept = {k: v for k, v in os.environ.items() if not k.startswith("NEAP_") or k in ("NEAP_SIM_PATH", "NEAP_SIM_RUNTIME")}
        return {**kept, "HOME": str(self.root / "home"), "TMPDIR": str(self.root), "XDG_STATE_HOME": str(self.root / "state"), **more}

    def prepare(self, denied: "tuple[str, ...]") -> None:
        if self.user is not None:
            os.setgroups([])
            os.setgid(self.user)
            os.setuid(self.user)
        if denied:
            deny(*denied)

    def estimate(self, *options: str, command: "list[str] | None" = None, denied: "tuple[str, ...]" = (),
                 **more: str) -> "subprocess.CompletedProcess[str]":
        shutil.rmtree(self.runs, ignore_errors=True)
        return subprocess.run([NEAP, "estimate", "--gpu", "t4-16gb,h100-80gb", "--folder", str(self.runs), *options, "--",
                               *(command or [self.python, str(self.root / "harm.py")])], cwd=self.folder, env=self.environment(**more),
                              stdin=subprocess.DEVNULL, capture_output=True, text=True, preexec_fn=lambda: self.prepare(denied))

    def done(self) -> "dict[str, str]":
        (run,) = self.runs.iterdir()
        return json.loads((run / "stdout.log").read_text())

    def facts(self) -> "dict[str, object]":
        (run,) = self.runs.iterdir()
        return json.loads((run / "view.json").read_text())

    def strays(self) -> "list[pathlib.Path]":
        return [*pathlib.Path("/dev/shm").glob("neaptest-*"), *pathlib.Path("/tmp").glob("neaptest-*")]

    def check_unchanged(self) -> None:
        self.assertEqual(picture(self.folder), self.before)
        self.assertEqual(self.strays(), [])
        made = {str(path.relative_to(self.root / "home")) for path in (self.root / "home").rglob("*")}
        self.assertLessEqual(made, {".cache", ".cache/neap", ".cache/neap/values"})

    def test_cache(self) -> None:
        """What neap compiles for itself is kept: otherwise every run would compile it again."""
        result = self.estimate(command=["sh", "-c", "cd ~/.cache/neap && echo kept > values/object && echo dropped > other && echo > any.pyc"])
        self.assertEqual(result.returncode, 1, result.stderr)
        cache = self.root / "home/.cache/neap"
        self.assertEqual((cache / "values/object").read_text(), "kept\n")
        self.assertFalse((cache / "other").exists())
        self.assertEqual(self.facts()["files"], 1)

    def test_mounts(self) -> None:
        descriptor = os.open(self.folder / "model.pt", os.O_WRONLY | os.O_APPEND)
        os.set_inheritable(descriptor, True)
        try:
            result = subprocess.run([NEAP, "estimate", "--gpu", "t4-16gb", "--folder", str(self.runs), "--", self.python,
                                     str(self.root / "harm.py")], cwd=self.folder, env=self.environment(DESCRIPTOR=str(descriptor)), pass_fds=(descriptor,),
                                    capture_output=True, text=True, preexec_fn=lambda: self.prepare(()))
        finally:
            os.close(descriptor)
        self.assertEqual(result.returncode, 1, result.stderr)
        self.assertIn("without using the GPU", result.stderr)
        self.check_unchanged()
        done = self.done()
        self.assertIn("Bad file descriptor", done.pop("descriptor"))
        facts = self.facts()
        if self.user is not None and "/tmp" in facts["read_only"]:  # documented: another mount lies below it
            self.assertIn("Read-only file system", done.pop("write /tmp/neaptest-HERE"))
        self.assertEqual({name: how for name, how in done.items() if how != "done"}, {})  # the program sees what it wrote
        self.assertEqual(facts["kind"], "mounts")
        self.assertGreaterEqual(facts["files"], 10)
        self.assertEqual(facts["deleted"], 2)  # an old and a removed file: the folder is there again

    def test_forks(self) -> None:
        """A process that the program forks for another GPU starts from the files as they were when it asked, and
        writes unseen. No file that its view's maker holds leads out. Asking for one view too many fails at once."""
        (self.root / "forks.py").write_text(FORKING)
        package = str(pathlib.Path(NEAP).parents[1] / "python")
        available = int(pathlib.Path("/proc/meminfo").read_text().split("MemAvailable:")[1].split()[0]) << 10
        result = self.estimate(command=["env", f"PYTHONPATH={package}", self.python, str(self.root / "forks.py")])
        self.check_unchanged()
        self.assertNotIn("harm", result.stdout + result.stderr)
        (run,) = self.runs.iterdir()
        lines = (run / "stdout.log").read_text().splitlines()
        self.assertEqual(len(lines), 2, (result.stderr, (run / "stderr.log").read_text()))
        before, seen, log, rights = json.loads(lines[0])
        self.assertEqual(seen, before)
        self.assertEqual(before[1], {"model.pt": "by the first", "log": "begun\n", "moved/file": "the user's folder/deep/file"})
        self.assertNotIn("removed", before[0])
        ordinary = os.geteuid() != 0 or self.user is not None
        self.assertTrue(int(rights, 16) == 0 or not ordinary, rights)
        (names, contents), files, deleted, limit = json.loads(lines[1])
        self.assertEqual((contents["new.pt"], contents["log"], log), ("by the first, later", "begun\nthe first\n", "begun\nthe other\n"))
        self.assertNotIn("removed", names)
        self.assertEqual((files, deleted), (4 + ordinary, 1))  # model.pt, new.pt, log, removed, and if it had to be copied moved/file
        self.assertEqual((run / "other.0/findings").read_text(), "for real")
        self.assertEqual(limit, self.facts()["limit"])  # of one fork, which may write as much as the first process
        self.assertLess(2 * limit, 0.7 * available)  # at most half of the memory that was available then
        self.assertFalse((run / "views").exists())

    def mounted(self, script: str, command: str) -> "subprocess.CompletedProcess[str]":
        """An estimate among the mounts that `script` makes. Returns also what the file "after" contains then."""
        namespace = ["unshare", "-m"] if os.geteuid() == 0 and self.user is None else ["unshare", "-U", "-r", "-m"]
        whole = f'{script}\n"$0" estimate --gpu t4-16gb --folder {self.runs} -- sh -c "{command}"\ncode=$?\ncat one/f two/model.pt > after\nexit $code'
        return subprocess.run([*namespace, "sh", "-c", whole, NEAP], cwd=self.root, env=self.environment(), stdin=subprocess.DEVNULL,
                              capture_output=True, text=True, preexec_fn=lambda: self.prepare(()))

    def test_other_file_systems(self) -> None:
        for name in ("one", "two", "after"):
            (self.root / name).mkdir() if name != "after" else (self.root / name).touch()
            if self.user is not None:
                os.chown(self.root / name, self.user, self.user)
        result = self.mounted("mount -t tmpfs x one && echo mine > one/f && mount --bind work two",
                              "echo changed | tee one/f two/model.pt work/other two/new; cat one/f two/model.pt work/other")
        self.assertIn("without using the GPU", result.stderr)
        (run,) = self.runs.iterdir()
        self.assertEqual((run / "stdout.log").read_text(), "changed\n" * 4, (run / "stderr.log").read_text())
        self.assertEqual((self.root / "after").read_text(), "mine\nthe user's model.pt")
        self.check_unchanged()

    def mount_below_a_folder_in_parts(self, root: pathlib.Path) -> None:
        service = socket.socket(socket.AF_UNIX)
        self.addCleanup(service.close)
        service.bind(str(root / "service"))
        service.listen()
        (root / "service").chmod(0o777)
        (root / "connect.py").write_text("import socket\ntry:\n socket.socket(socket.AF_UNIX).connect('service')\n"
                                         "except OSError as problem:\n print(problem.strerror)\n")
        (root / "locked").mkdir()
        (root / "sub" / "one").mkdir(parents=True)
        if self.user is not None:
            for path in [root, *root.rglob("*")]:
                os.lchown(path, self.user, self.user)
        inner = (f'mount -t tmpfs x sub/one && echo mine > sub/one/f && "$0" estimate --gpu t4-16gb --folder {self.runs} -- '
                 'sh -c "cat sub/one/f; echo changed > sub/one/f; cat sub/one/f; ' + self.python + ' connect.py" 2> /dev/null; cat sub/one/f > locked/after')
        subprocess.run(["unshare", "-U", "-r", "-m", "sh", "-c", 'mount -t tmpfs x locked && unshare -U -r -m sh -c "$1" "$0"; cp locked/after .',
                        NEAP, inner], cwd=root, env=self.environment(), stdin=subprocess.DEVNULL, check=True, preexec_fn=lambda: self.prepare(()))
        (run,) = self.runs.iterdir()
        self.assertEqual((run / "stdout.log").read_text(), "mine\nchanged\nConnection refused\n", (run / "stderr.log").read_text())
        self.assertEqual((root / "after").read_text(), "mine\n")

    def test_mount_below_a_folder_in_parts(self) -> None:
        """TMPDIR cannot be covered whole, because of `locked`, but programs write there: everything below it is covered
        once, and no socket in it answers."""
        self.mount_below_a_folder_in_parts(self.root)

    def test_mount_below_one_of_many_folders(self) -> None:
        """There are more folders than are covered one by one: the working directory is covered as a place to write
        to, before its mounts."""
        for number in range(2000):
            (self.root / "many" / str(number)).mkdir(parents=True)
        here = self.root / "many" / "here"
        here.mkdir()
        self.mount_below_a_folder_in_parts(here)

    def test_hidden_working_directory(self) -> None:
        """Another folder now has its path: no view leads back to the old one."""
        script = f'mkdir m && mount -t tmpfs x m && cd m && echo hidden > f && mount -t tmpfs y "$PWD" && exec "$0" estimate --gpu t4-16gb --folder {self.runs} -- sh -c "cat f; echo changed > f"'
        namespace = ["unshare", "-m"] if os.geteuid() == 0 and self.user is None else ["unshare", "-U", "-r", "-m"]
        subprocess.run([*namespace, "sh", "-c", script, NEAP], cwd=self.root, env=self.environment(), stdin=subprocess.DEVNULL,
                       capture_output=True, preexec_fn=lambda: self.prepare(()))
        self.assertEqual(self.facts()["kind"], "landlock")
        (run,) = self.runs.iterdir()
        self.assertEqual((run / "stdout.log").read_text(), "hidden\n")

    def test_what_no_overlay_can_cover(self) -> None:
        """The kernel stacks two overlays: a third does not fit on the second."""
        if os.geteuid() or self.user is not None:
            self.skipTest("only root can make such mounts")
        (self.root / "two").mkdir()
        (self.root / "two" / "model.pt").touch()
        result = self.mounted("mkdir one && mount -t tmpfs x one && cd one && mkdir l u v w x a b && echo mine > l/f && "
                              "mount -t overlay x -o lowerdir=l,upperdir=u,workdir=w a && mount -t overlay x -o lowerdir=a,upperdir=v,workdir=x b"
                              " && cp l/f f && cd ..", "echo changed > one/a/f && echo changed > one/b/f")
        self.assertEqual(self.facts()["read_only"], [f"{self.root}/one/b"])
        self.assertIn("neap estimate: one/b/f was not written (Read-only file system)", result.stderr)

    def test_kept(self) -> None:
        kept = self.root / "kept"
        result = self.estimate("--keep-writes", str(kept), command=["sh", "-c", "echo changed > model.pt; rm old; ln -s x y; echo z > folder/deep/z"])
        self.assertEqual(result.returncode, 1, result.stderr)
        self.check_unchanged()
        (run,) = kept.iterdir()
        below = run / str(self.folder).lstrip("/")
        self.assertEqual((below / "model.pt").read_text(), "changed\n")
        self.assertEqual((below / "folder/deep/z").read_text(), "z\n")
        self.assertEqual(os.readlink(below / "y"), "x")
        self.assertEqual((run / "deleted.txt").read_text(), f"{self.folder}/old\n")
        self.assertEqual(sorted(path.name for path in below.rglob("*")), ["deep", "folder", "model.pt", "y", "z"])
        again = self.estimate("--keep-writes", str(kept))
        self.assertEqual(again.returncode, 64)
        self.assertIn("not a folder that is new or empty", again.stderr)

    def test_bound(self) -> None:
        """Checks what a run may write: the check fails inside, and the report says why."""
        result = self.estimate(command=[self.python, "-c", "import os\nwith open('big', 'wb') as f:\n f.truncate(1 << 50)\n os.posix_fallocate(f.fileno(), 0, 1 << 50)"])
        self.assertEqual(result.returncode, 1)
        self.assertIn("what the program writes is bounded at", result.stderr)
        self.check_unchanged()

    def test_holes(self) -> None:
        """A sparse file of 1 TiB takes no memory."""
        self.estimate(command=["truncate", "-s", "1T", "big"])
        self.assertEqual((self.facts()["files"], self.facts()["bytes"]), (1, 0))
        self.check_unchanged()

    def test_network(self) -> None:
        script = ("import socket\nserver = socket.create_server(('127.0.0.1', 0))\nsocket.create_connection(server.getsockname())\n"
                  "print(sorted(name for _, name in socket.if_nameindex()))")
        self.estimate("--no-network", command=[self.python, "-c", script])
        (run,) = self.runs.iterdir()
        self.assertEqual((run / "stdout.log").read_text(), "['lo']\n", (run / "stderr.log").read_text())
        self.assertTrue(self.facts()["no_network"])

    def test_trackers(self) -> None:
        names = ("WANDB_MODE", "COMET_START_ONLINE", "NEPTUNE_MODE", "CLEARML_OFFLINE_MODE", "MLFLOW_TRACKING_URI")
        script = ["sh", "-c", " ".join(f'echo "${name}";' for name in names)]
        self.estimate(command=script, WANDB_MODE="online", MLFLOW_TRACKING_URI="http://server:5000")
        (run,) = self.runs.iterdir()
        self.assertEqual((run / "stdout.log").read_text().split(), ["offline", "0", "offline", "1", f"file:{run}/mlruns"])
        self.estimate(command=script, WANDB_MODE="disabled", NEPTUNE_MODE="debug", MLFLOW_TRACKING_URI="./mlruns")
        self.assertEqual((run / "stdout.log").read_text().split(), ["disabled", "0", "debug", "1", "./mlruns"])

    @unittest.skipUnless(NUMBERS, "numbers of system calls are known for two processors")
    def test_landlock(self) -> None:
        result = self.estimate(denied=("unshare",))
        self.assertEqual(result.returncode, 1, result.stderr)
        for path in pathlib.Path("/dev/shm").glob("neaptest-*"):
            path.unlink()  # documented: /dev/shm is the real one there
        self.check_unchanged()
        for name, how in self.done().items():
            if not name.startswith("write /dev/shm"):
                self.assertNotEqual(how, "done", name)
        self.assertEqual(self.facts()["kind"], "landlock")
        named = self.estimate(command=[self.python, "-c", "import os; open(os.environ['TMPDIR'] + '/x', 'w'); open('model.pt', 'w')"],
                              denied=("unshare",))
        self.assertEqual(named.returncode, 1)
        self.assertIn("neap estimate: model.pt was not written (Permission denied)", named.stderr)
        self.check_unchanged()

    @unittest.skipUnless(NUMBERS, "numbers of system calls are known for two processors")
    def test_neither(self) -> None:
        for options, denied in (((), ("unshare", "landlock")), (("--no-network",), ("unshare",)),
                                (("--keep-writes", str(self.root / "kept")), ("unshare",))):
            result = self.estimate(*options, denied=denied)
            self.assertEqual(result.returncode, 69, result.stderr)
            self.assertIn("nothing was run", result.stderr)
            self.assertEqual(list(self.runs.glob("*/stdout.log")), [])
            self.check_unchanged()
        self.assertIn("--in-place", self.estimate(denied=("unshare", "landlock")).stderr)

    def test_in_place(self) -> None:
        result = self.estimate("--in-place", command=["sh", "-c", "echo changed > model.pt"], **{})
        self.assertEqual(result.returncode, 1, result.stderr)
        self.assertNotEqual(picture(self.folder), self.before)
        self.assertEqual(self.facts()["kind"], "in place")
        for option in ("--no-network", "--keep-writes=x"):
            self.assertEqual(self.estimate("--in-place", option).returncode, 64)

    def test_deaths(self) -> None:
        """Ctrl-C, SIGKILL of the command and of the process around the run, at any instant."""
        command = ["sh", "-c", "echo changed > model.pt; echo changed > /dev/shm/neaptest-death; : > /proc/self/comm; exec sleep 1000"]
        for number in range(60 if LONG else 12):
            process = subprocess.Popen([NEAP, "estimate", "--gpu", "t4-16gb", "--", *command], cwd=self.folder, env=self.environment(),
                                       stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                       start_new_session=True, preexec_fn=lambda: self.prepare(()))
            time.sleep(number // 3 * 0.04)  # chooses the instant: nothing is waited for
            victims = [process.pid]
            if number % 3 == 2:
                children = pathlib.Path(f"/proc/{process.pid}/task/{process.pid}/children")
                victims = [int(child) for child in children.read_text().split()] if children.exists() else []
            for victim in victims or [process.pid]:
                try:
                    (os.killpg if number % 3 == 0 else os.kill)(victim, signal.SIGINT if number % 3 == 0 else signal.SIGKILL)
                except ProcessLookupError:
                    pass
            process.communicate()  # its output ends with the last process that holds it
            self.assertNotEqual(process.returncode, 0)
            self.check_unchanged()

    def test_hangup(self) -> None:
        """The terminal is closed: its processes get SIGHUP, including the one around the run. No folder is left."""
        for number in (signal.SIGHUP, signal.SIGQUIT):
            process = subprocess.Popen([NEAP, "estimate", "--gpu", "t4-16gb", "--", "sh", "-c", "echo > started; exec sleep 1000"], cwd=self.folder,
                                       env=self.environment(), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                       text=True, start_new_session=True, preexec_fn=lambda: self.prepare(()))
            while not any(name == "sleep" for name in self.descendants(process.pid)):
                self.assertIsNone(process.poll())
                time.sleep(0.01)
            os.killpg(process.pid, number)
            process.communicate()
            self.assertEqual(list(self.root.glob("neap-estimate-*")), [], number)
            self.check_unchanged()

    def descendants(self, pid: int) -> "list[str]":
        """Their names."""
        names = []
        try:
            for child in pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
                names += [pathlib.Path(f"/proc/{child}/comm").read_text().strip(), *self.descendants(int(child))]
        except OSError:
            pass  # it has ended
        return names

    def fail_each(self, denied: "tuple[str, ...]", stride: int) -> None:
        count = self.root / "count"
        script = ["sh", "-c", "echo changed > model.pt; echo changed > /tmp/neaptest-fault; echo ran"]
        preload = {"LD_PRELOAD": FAILING_CALLS, "FAILING_CALL_COUNT": str(count)}
        self.estimate(command=script, denied=denied, FAILING_CALL="0", **preload)
        (run,) = self.runs.iterdir()
        self.assertEqual((run / "stdout.log").read_text(), "ran\n")
        calls = int(count.read_text())
        self.assertGreater(calls, 30)
        ends = {"isolated": 0, "refused": 0}
        for number in range(1, calls + 1, 1 if LONG else stride):
            for more in ({}, {"FAILING_CALL_ON": "1"}):
                result = self.estimate(command=script, denied=denied, FAILING_CALL=str(number), **preload, **more)
                self.check_unchanged()
                ran = [path for path in self.runs.glob("*/stdout.log") if path.read_text() == "ran\n"]
                ends["isolated" if ran else "refused"] += 1
                self.assertIn(result.returncode, (1, 66, 69, 71, 73, 74, 77), f"call {number} of {calls}: {result.stderr}")
                self.assertNotEqual(result.stderr, "", f"call {number} of {calls}")
        self.assertGreater(ends["isolated"], 0)
        self.assertGreater(ends["refused"], 0)

    def test_faults(self) -> None:
        """Each isolating system call fails, alone and with all that follow."""
        self.fail_each((), 11)

    @unittest.skipUnless(NUMBERS, "numbers of system calls are known for two processors")
    def test_faults_of_landlock(self) -> None:
        self.fail_each(("unshare",), 3)


@unittest.skipUnless(os.geteuid() == 0, "as an ordinary user these are the tests above")
class Ordinary(View):
    """The same as an ordinary user, who needs a user namespace for a view."""

    user = OUTSIDER
    python = "/usr/bin/python3"

    def setUp(self) -> None:
        reads = subprocess.run([NEAP, "help"], capture_output=True, check=False, preexec_fn=lambda: self.prepare(())) if self.reaches() else None
        if reads is None or reads.returncode or not os.access(self.python, os.X_OK):
            self.skipTest("another user cannot start the command here")
        super().setUp()

    def reaches(self) -> bool:
        return all(path.stat().st_mode & 0o001 for path in pathlib.Path(NEAP).parents)


if __name__ == "__main__":
    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # nohup ignores SIGHUP, and so would programs that are started here
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]], verbosity=2)
