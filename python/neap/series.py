"""Runs experiments one after another, each as a function in a fresh process: its remains are gone before the next begins.

    this process --spawns--> child, leader of a process group of its own: function -> (outcome, value, figures) --pipe--> here
        ends for any reason (also a Ctrl-C here, an exception, the time limit): its whole group is ended, too if this process is
        killed: the child kills its group

For commands, with waiting for free memory, a journal and resuming, there is `neap series`; this is for functions.
"""

from __future__ import annotations

import dataclasses
import logging
import multiprocessing
import multiprocessing.connection
import os
import signal
import threading
import time
import traceback
from collections.abc import Iterable
from typing import Any, Callable

from . import _sources, memory
from ._drain import Drain

log = logging.getLogger("neap")


@dataclasses.dataclass(frozen=True, repr=False)
class ExperimentResult:
    """The result of one experiment. Plain data, independent of its process."""

    name: str
    outcome: str  # "ok", "oom", "failed", "killed", "timeout"
    value: Any  # what the function returned
    error: str  # its traceback, or how it ended; "" if ok
    seconds: float  # from its start until its processes were gone
    stats: memory.MemoryStats | None  # at its end, with peaks; None: unknown
    exit_status: int | None  # of its process; -N: ended by signal N; None: there was none
    drained: bool | None = None  # whether the device memory that it held is free again; None: unknown
    drain_seconds: float = 0.0
    drain_note: str = ""  # the memory still held, or why that is unknown

    def __repr__(self) -> str:
        last = self.error.strip().rsplit("\n", 1)[-1]
        return f"<ExperimentResult {self.name}: {self.outcome} after {self.seconds:.1f} s{': ' + last if last else ''}>"


_GRACE_SECONDS = 5.0  # between SIGTERM and SIGKILL
_UNSEEN_SECONDS = 2.0  # how long to wait for memory of an experiment that reports no device
_LEAVE_SECONDS = 10.0  # how long a process that has given its result has to end by itself


def _end_with_parent() -> None:
    """Kills this process's group when its parent ends: a killed parent ends no child."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        multiprocessing.connection.wait([parent.sentinel])
        os.killpg(0, signal.SIGKILL)


def _child(pipe: Any, function: Callable[..., Any], arguments: tuple[Any, ...], named: dict[str, Any]) -> None:
    os.setpgid(0, 0)  # so that its own children can be ended with it, and only its parent handles a Ctrl-C
    threading.Thread(target=_end_with_parent, name="neap-parent", daemon=True).start()
    outcome = "ok"
    value = None
    error = ""
    try:
        value = function(*arguments, **named)
    except BaseException as exception:  # any exception is the result
        outcome = "oom" if memory.is_out_of_memory(exception) else "failed"
        error = "".join(traceback.format_exception(type(exception), exception, exception.__traceback__))
    stats = memory.get_gpu_memory_stats()
    used = _sources.used_uuids()
    try:
        pipe.send((outcome, value, error, stats, used))
    except Exception as exception:  # for example, the value cannot be pickled
        pipe.send(("failed", None, f"its result cannot be sent: {exception}", stats, used))
    pipe.close()


def _group(leader: int) -> set[int]:
    """Returns the processes of a process group."""
    found = set()
    for entry in os.listdir("/proc"):
        try:
            with open(f"/proc/{entry}/stat", encoding="utf-8", errors="replace") as file:
                if entry.isdigit() and int(file.read().rsplit(")", 1)[1].split()[2]) == leader:
                    found.add(int(entry))
        except (OSError, IndexError, ValueError):
            continue
    return found


class _Process:
    """A child and the group that it leads. Until the child is waited for, its PID, and so the group's, is not reused."""

    def __init__(self, process: Any) -> None:
        self._process = process
        self._pidfd: int | None = None  # readable once it has ended
        self.pids: set[int] = set()  # of the group, as seen when it was ended

    def start(self) -> None:
        """Starts the child. Raises the errors of starting. A Ctrl-C may come when the child exists already: call end() in any
        case."""
        self._process.start()
        try:
            self._pidfd = os.pidfd_open(self._process.pid)
        except (AttributeError, OSError):  # an old kernel, or Python for an old one
            pass

    def wait(self, pipe: Any, seconds: float | None) -> bool:
        """Waits until the child has sent something or ended. False: the time is over."""
        # The sentinel is readable once the child, and all processes that inherited the sentinel's other end, have ended.
        ended: Any = self._process.sentinel if self._pidfd is None else self._pidfd
        return bool(multiprocessing.connection.wait([ended] + ([pipe] if pipe else []), seconds))

    def _signal(self, number: signal.Signals) -> None:
        for send, pid in ((os.killpg, self._process.pid), (os.kill, self._process.pid)):
            try:
                send(pid, number)
            except (ProcessLookupError, PermissionError):  # it leads no group yet, or all have ended
                pass

    def end(self, leave: float) -> int:
        """Ends the child, unless it ends by itself within `leave` seconds, and all processes that it started and left. Returns its
        exit status; 0 if it never began."""
        if self._process.pid is None:
            return 0
        try:
            if not self.wait(None, leave):
                self._signal(signal.SIGTERM)
                self.wait(None, _GRACE_SECONDS)
        finally:  # even if a second Ctrl-C comes meanwhile
            self.pids = {self._process.pid, *_group(self._process.pid)}
            self._signal(signal.SIGKILL)
            self._process.join()
            status = int(self._process.exitcode)
            self._process.close()
            if self._pidfd is not None:
                os.close(self._pidfd)
        return status


class ExperimentSeriesRunner:
    """Runs functions one after another, each in its own process (spawned, so that none inherits CUDA):

        runner = neap.ExperimentSeriesRunner()
        results = runner.run([("small", train, {"width": 64}), ("large", train, {"width": 512})])

    A function must be importable (defined at a module's top level; a script starts its runs under `if __name__ == "__main__":`,
    since each process imports it again), and its result picklable. If one fails, runs out of memory, is killed or takes longer than
    `timeout` seconds (None: no limit), the next still runs, unless `stop_on_failure`. When the process ends, so do the processes
    that it started, if they stayed in its process group: a late or interrupted one gets SIGTERM and 5 s, then SIGKILL. Then the
    runner waits, at most `drain_limit` seconds, until their device memory is free again, as `neap run` does; `drained` has the
    result.

    On Ctrl-C, or any exception, the experiment under way is ended in the same way, and the exception is raised again; `results` has
    the completed ones. If this process is killed, the experiment and its process group are killed at once. One runner runs one
    experiment at a time, from one thread.
    """

    def __init__(self, timeout: float | None = None, stop_on_failure: bool = False, drain_limit: float = 60) -> None:
        if not drain_limit >= 0:
            raise ValueError(f"drain_limit {drain_limit}: expected seconds, 0 for no wait")
        if timeout is not None and not timeout > 0:
            raise ValueError(f"timeout {timeout}: expected seconds above 0, or None for no limit")
        self.timeout = timeout
        self.stop_on_failure = stop_on_failure
        self.drain_limit = drain_limit
        self.results: list[ExperimentResult] = []

    def run(self, experiments: Iterable[tuple[str, Callable[..., Any], dict[str, Any]]]) -> list[ExperimentResult]:
        """Runs them all, each given as (name, function, named arguments). Returns the results in their order, also in `results`."""
        self.results = []
        for name, function, named in experiments:
            self.results.append(self.run_one(name, function, **named))
            if self.stop_on_failure and self.results[-1].outcome != "ok":
                break
        return self.results

    def run_one(self, name: str, function: Callable[..., Any], /, *arguments: Any, **named: Any) -> ExperimentResult:
        """Runs one, and cleans up this process before and after it (memory.clear_gpu_memory). Waits until its process and that
        process's children have ended, and their device memory is free again (at most `drain_limit` seconds). Raises only errors
        that are not the experiment's: KeyboardInterrupt, OSError."""
        memory.clear_and_log()
        log.info("Experiment %s: begins", name)
        result = self._run(name, function, arguments, named)
        log.info("Experiment %s: %s after %.1f s", name, result.outcome, result.seconds)
        memory.clear_and_log()
        return result

    def _run(self, name: str, function: Callable[..., Any], arguments: Any, named: dict[str, Any]) -> ExperimentResult:
        with Drain() as drain:
            result, pids, used = self._run_process(name, function, arguments, named)
            if not pids:  # it never began
                return result
            limit = min(self.drain_limit, _UNSEEN_SECONDS) if used == () else self.drain_limit
            done = drain.wait(pids, used or None, limit)
        if done.drained is False:
            log.warning("Experiment %s: memory was not given back: %s", name, done.note)
        return dataclasses.replace(result, drained=done.drained, drain_seconds=done.seconds, drain_note=done.note)

    def _run_process(
        self, name: str, function: Callable[..., Any], arguments: Any, named: dict[str, Any]
    ) -> tuple[ExperimentResult, set[int], tuple[bytes, ...] | None]:
        """Returns the result, the processes, and the devices that they used: () if it knew of none, None if it did not report
        them."""
        context = multiprocessing.get_context("spawn")
        ours, theirs = context.Pipe(duplex=False)
        began = time.monotonic()
        process = _Process(context.Process(target=_child, args=(theirs, function, arguments, named), name=name))
        answer = None
        late = False
        leave = 0.0
        try:
            try:
                process.start()
            except OSError:
                raise
            except Exception as exception:  # pickling may raise anything
                text = f"cannot be sent to a process: {exception}"
                return ExperimentResult(name, "failed", None, text, 0.0, None, None), set(), ()
            finally:
                theirs.close()
            late = not process.wait(ours, self.timeout)
            answer = None if late else self._answer(ours)
            leave = 0.0 if answer is None else _LEAVE_SECONDS
        finally:
            ours.close()
            code = process.end(leave)
        result = self._result(name, answer, late, code, time.monotonic() - began)
        return result, process.pids, answer[4] if answer else None

    def _answer(self, pipe: Any) -> Any:
        try:
            return pipe.recv() if pipe.poll(0) else None
        except (EOFError, OSError):  # it ended without a result
            return None
        except Exception as exception:  # unpickling runs the result's own code
            return "failed", None, f"its result cannot be read: {type(exception).__name__}: {exception}", None, None

    def _result(self, name: str, answer: Any, late: bool, code: int, seconds: float) -> ExperimentResult:
        if late:
            text = f"took longer than {self.timeout} s"
            return ExperimentResult(name, "timeout", None, text, seconds, None, code)
        if answer is None:
            how = f"exit status {code}" if code >= 0 else f"killed by {signal.Signals(-code).name}"
            return ExperimentResult(name, "killed", None, f"ended without a result: {how}", seconds, None, code)
        outcome, value, error, stats, _ = answer
        return ExperimentResult(name, outcome, value, error, seconds, stats, code)
