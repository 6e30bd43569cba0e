"""A whole Slurm on this machine, for one test: munged, slurmctld and slurmd on loopback, in a folder of their own.

No systemd, no control groups, no fixed ports, as root or as any user. All daemons descend from this process,
their subreaper, and end with it.
"""

import ctypes
import os
import pwd
import re
import shutil
import signal
import socket
import subprocess
import sys
import time

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "squeue", "scancel", "scontrol", "sinfo")
PATIENCE_S = 90  # for each wait: a busy machine is slow, not broken
PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
LIBC = ctypes.CDLL(None)

CONFIGURATION = """\
ClusterName=neap
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={control_port}
SlurmdPort={node_port}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={folder}/munge/socket
CredType=cred/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
SlurmdParameters=config_overrides
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SwitchType=switch/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
SchedulerParameters=sched_min_interval=0,batch_sched_delay=0,sched_interval=1
DefMemPerCPU=20
PropagateResourceLimits=NONE
GresTypes=gpu
KillWait=10
MinJobAge=3600
MessageTimeout=60
SlurmctldTimeout=600
SlurmdTimeout=600
UnkillableStepTimeout=120
ReturnToService=2
MaxArraySize={max_array}
NodeName={host} NodeAddr=127.0.0.1 CPUs=8 Sockets=8 RealMemory=1000 Gres=gpu:2 State=UNKNOWN
PartitionName=work Nodes={host} Default=YES MaxTime=INFINITE State=UP
"""


def missing():
    """The programs that are missing. Daemons are often not on a user's PATH."""
    os.environ["PATH"] += ":/usr/sbin:/sbin"
    return [name for name in PROGRAMS if not shutil.which(name)]


def wait_for(what, condition, patience_s=PATIENCE_S):
    """Waits until the condition is true; returns its value. Every wait of the tests uses this."""
    deadline = time.monotonic() + patience_s
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            raise AssertionError(f"{what}: not within {patience_s} s")
        time.sleep(0.05)


def free_ports(count):
    sockets = [socket.socket() for _ in range(count)]
    try:
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]
    finally:
        for one in sockets:
            one.close()


class Cluster:
    def __init__(self, folder, max_array=1001):
        self.folder = folder
        self.max_array = max_array
        self.host = socket.gethostname().split(".")[0]
        self.daemons = []
        LIBC.prctl(PR_SET_CHILD_SUBREAPER, 1)
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # a test that takes too long cleans up too

    def __enter__(self):
        try:
            for attempt in range(3):  # a port may be taken between our check and the daemon's start
                if self.start(attempt):
                    return self
            raise AssertionError("the cluster did not start:\n" + self.logs())
        except BaseException:
            self.stop()
            raise

    def __exit__(self, *_):
        self.stop()

    def start(self, attempt):
        self.stop()
        place = f"{self.folder}/{attempt}"
        for name in ("munge", "state", "spool"):
            os.makedirs(f"{place}/{name}")
            os.chmod(f"{place}/{name}", 0o755)
        os.chmod(place, 0o755)
        self.place = place
        control_port, node_port = free_ports(2)
        with open(os.open(f"{place}/munge/key", os.O_WRONLY | os.O_CREAT, 0o600), "wb") as key:
            key.write(os.urandom(128))
        with open(f"{place}/gres.conf", "w") as text:
            text.write("AutoDetect=off\nName=gpu File=/dev/zero\nName=gpu File=/dev/full\n")
        with open(f"{place}/slurm.conf", "w") as text:
            text.write(CONFIGURATION.format(host=self.host, control_port=control_port, node_port=node_port,
                                            user=pwd.getpwuid(os.getuid()).pw_name, folder=place,
                                            max_array=self.max_array))
        os.environ["SLURM_CONF"] = f"{place}/slurm.conf"
        munge = f"{place}/munge"
        self.launch("munged", "--foreground", "--force", "--num-threads=2", f"--key-file={munge}/key",
                    f"--socket={munge}/socket", f"--pid-file={munge}/pid", f"--log-file={munge}/log",
                    f"--seed-file={munge}/seed")
        wait_for("munged's socket", lambda: os.path.exists(f"{munge}/socket") or self.failed())
        self.launch("slurmctld", "-D", "-f", f"{place}/slurm.conf")
        self.launch("slurmd", "-D", "-N", self.host, "-f", f"{place}/slurm.conf")
        wait_for("an idle node", lambda: self.failed() or self.ask("sinfo", "-h", "-o", "%T").split() == ["idle"])
        return not self.failed()

    def launch(self, *words):
        with open(f"{self.place}/{words[0]}.out", "w") as output:
            self.daemons.append(subprocess.Popen(words, stdout=output, stderr=output, stdin=subprocess.DEVNULL,
                                                 start_new_session=True,
                                                 preexec_fn=lambda: LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)))

    def failed(self):
        return any(daemon.poll() is not None for daemon in self.daemons)

    def logs(self):
        text = ""
        for root, _, names in os.walk(self.folder):
            for name in sorted(names):
                if name.endswith((".log", ".out")):
                    with open(os.path.join(root, name), errors="replace") as log:
                        text += f"--- {name}\n" + log.read()[-3000:]
        return text

    @staticmethod
    def ask(*words):
        """The output of one of Slurm's commands; "" if it refuses."""
        done = subprocess.run(words, capture_output=True, text=True, timeout=PATIENCE_S)
        return done.stdout if done.returncode == 0 else ""

    def states(self):
        """{"JOB_TASK": state} of all tasks that the controller knows."""
        lines = self.ask("squeue", "--noheader", "--array", "--states=all", "--format=%F_%K %T").splitlines()
        return dict(line.split() for line in lines if re.fullmatch(r"\d+_\d+ [A-Z_]+", line))

    def stop(self):
        if self.daemons and not self.failed():
            self.ask("scancel", "--full", f"--user={pwd.getpwuid(os.getuid()).pw_name}")
        for daemon in self.daemons:
            daemon.kill()  # what they would save is deleted with the folder
            daemon.wait()
        self.daemons = []
        self.end_children()

    @staticmethod
    def end_children():
        """slurmstepds and the processes that they ran: we reap and end them."""
        while True:
            try:
                with open(f"/proc/self/task/{os.getpid()}/children") as text:
                    children = [int(pid) for pid in text.read().split()]
                for pid in children:
                    os.kill(pid, signal.SIGKILL)
                os.waitpid(-1, 0)
            except ChildProcessError:
                return
            except (ProcessLookupError, FileNotFoundError):
                pass
