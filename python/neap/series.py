"""Experiments one after another, each callable in a fresh process: what one leaves behind is gone before the next begins.

    this process --spawns--> child, leader of a process group of its own: function -> (outcome, value, figures) --pipe--> here
        ends for whatever reason (also a Ctrl-C here, an exception, the time limit): the whole group is ended with it
        outlives this process, which was killed: it kills its group

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
    """What became of one experiment. Plain data; nothing of the process is left."""

    name: str
    outcome: str  # "ok", "oom", "failed", "killed", "timeout"
    value: Any  # what the function returned
    error: str  # its traceback, or how it ended; "" when ok
    seconds: float  # from its start until its processes were gone
    stats: memory.MemoryStats | None  # at its end, peaks included; None when it could not say
    exit_status: int | None  # of its process; -N: ended by signal N; None: there was none
    drained: bool | None = None  # whether the device memory that it held is free again; None: unknown
    drain_seconds: float = 0.0
    drain_note: str = ""  # the memory still held, or why that is unknown

    def __repr__(self) -> str:
        last = self.error.strip().rsplit("\n", 1)[-1]
        return f"<ExperimentResult {self.name}: {self.outcome} after {self.seconds:.1f} s{': ' + last if last else ''}>"


_GRACE_SECONDS = 5.0  # between SIGTERM and SIGKILL
_UNSEEN_SECONDS = 2.0  # to wait for memory of an experiment that reports no device
_LEAVE_SECONDS = 10.0  # for a process that has given its result, to end by itself


def _end_with_parent() -> None:
    """A parent that is killed ends no child."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        multiprocessing.connection.wait([parent.sentinel])
        os.killpg(0, signal.SIGKILL)


def _child(pipe: Any, function: Callable[..., Any], arguments: tuple[Any, ...], named: dict[str, Any]) -> None:
    os.setpgid(0, 0)  # so that what it starts can be ended with it, and a Ctrl-C is its parent's to answer
    threading.Thread(target=_end_with_parent, name="neap-parent", daemon=True).start()
    outcome = "ok"
    value = None
    error = ""
    try:
        value = function(*arguments, **named)
    except BaseException as exception:  # what it was is the result
        outcome = "oom" if memory.is_out_of_memory(exception) else "failed"
        error = "".join(traceback.format_exception(type(exception), exception, exception.__traceback__))
    stats = memory.get_gpu_memory_stats()
    used = _sources.used_uuids()
    try:
        pipe.send((outcome, value, error, stats, used))
    except Exception as exception:  # the value cannot be pickled, say
        pipe.send(("failed", None, f"its result cannot be sent: {exception}", stats, used))
    pipe.close()


def _group(leader: int) -> set[int]:
    """The processes of a process group."""
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
    """A child and the group it leads. While the child is not waited for, its PID, and so the group's, is not reused."""

    def __init__(self, process: Any) -> None:
        self._process = process
        self._pidfd: int | None = None  # readable once it has ended
        self.pids: set[int] = set()  # of the group, as far as they were seen when it was ended

    def start(self) -> None:
        """Raises what starting does; and a Ctrl-C may come when the child is there already: end() in any case."""
        self._process.start()
        try:
            self._pidfd = os.pidfd_open(self._process.pid)
        except (AttributeError, OSError):  # an old kernel, or Python for an old one
            pass

    def wait(self, pipe: Any, seconds: float | None) -> bool:
        """Until it has printed something or ended; False when the time is over."""
        # The sentinel is readable once it has ended, and all that inherited the sentinel's other end.
        ended: Any = self._process.sentinel if self._pidfd is None else self._pidfd
        return bool(multiprocessing.connection.wait([ended] + ([pipe] if pipe else []), seconds))

    def _signal(self, number: signal.Signals) -> None:
        for send, pid in ((os.killpg, self._process.pid), (os.kill, self._process.pid)):
            try:
                send(pid, number)
            except (ProcessLookupError, PermissionError):  # it leads no group yet, or all are gone
                pass

    def end(self, leave: float) -> int:
        """Ends it, unless it does so by itself within so many seconds, and whatever it started and left; its exit status. 0
        where it never began."""
        if self._process.pid is None:
            return 0
        try:
            if not self.wait(None, leave):
                self._signal(signal.SIGTERM)
                self.wait(None, _GRACE_SECONDS)
        finally:  # also when a second Ctrl-C comes meanwhile
            self.pids = {self._process.pid, *_group(self._process.pid)}
            self._signal(signal.SIGKILL)
            self._process.join()
            status = int(self._process.exitcode)
            self._process.close()
            if self._pidfd is not None:
                os.close(self._pidfd)
        return status


class ExperimentSeriesRunner:
    """Runs functions one after another, each in a process of its own (spawned, so that none inherits CUDA):

        runner = neap.ExperimentSeriesRunner()
        results = runner.run([("small", train, {"width": 64}), ("large", train, {"width": 512})])

    A function must be importable (defined at a module's top level; a script's own begins runs under `if __name__ ==
    "__main__":`, since each process imports it again) and its result picklable. One that fails, runs out of
    memory, is killed or takes longer than `timeout` seconds (None: no limit) does not keep the next from running, unless
    `stop_on_failure`. With the process what it started ends too, if it stayed in its process group: SIGTERM and 5 s for one
    that is late or interrupted, then SIGKILL. Then it waits, at most `drain_limit` seconds, until what they held on the devices is
    free again, as `neap run` does: `drained` says whether it is.

    On Ctrl-C, or any exception, the experiment under way is ended the same way and the exception is raised again; `results` has
    those that were done. If this process is killed, the experiment and its process group are killed at once. One runner
    runs one experiment at a time, from one thread.
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
        """Runs them all, each (name, function, its named arguments); the results in their order, also in `results`."""
        self.results = []
        for name, function, named in experiments:
            self.results.append(self.run_one(name, function, **named))
            if self.stop_on_failure and self.results[-1].outcome != "ok":
                break
        return self.results

    def run_one(self, name: str, function: Callable[..., Any], /, *arguments: Any, **named: Any) -> ExperimentResult:
        """Runs one, cleans up this process before and after it (memory.clear_gpu_memory), and waits until its process and
        what that left behind are gone, and what they held on the devices is free again (`drain_limit` seconds at most). Raises
        only what is not the experiment's: KeyboardInterrupt, OSError."""
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
        """The result, the processes, and the devices that they used: () for none that it knew of, None where it did not say."""
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
            except Exception as exception:  # whatever pickling it raises
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
        except (EOFError, OSError):  # it ended without a word
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
