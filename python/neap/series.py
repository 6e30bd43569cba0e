"""Experiments one after another, each callable in a fresh process: what one leaves behind is gone before the next begins.

For commands, with waiting for free memory, a journal and resuming, there is `neap series`; this is for functions.
"""

from __future__ import annotations

import dataclasses
import logging
import multiprocessing
import pickle
import signal
import time
import traceback
from typing import Any, Callable, Iterable, Optional

from . import memory

log = logging.getLogger("neap")


@dataclasses.dataclass(frozen=True)
class ExperimentResult:
    """What became of one experiment."""

    name: str
    outcome: str  # "ok", "oom", "failed", "killed", "timeout"
    value: Any  # what the function returned
    error: str  # its traceback, or how it ended; "" when ok
    seconds: float
    stats: Optional[memory.MemoryStats]  # at its end, peaks included; None when it could not say
    exit_status: Optional[int]


def _child(pipe: Any, function: Callable[..., Any], arguments: tuple[Any, ...], named: dict[str, Any]) -> None:
    outcome, value, error = "ok", None, ""
    try:
        value = function(*arguments, **named)
    except BaseException as exception:  # what it was is the result
        outcome = "oom" if memory.is_out_of_memory(exception) else "failed"
        error = "".join(traceback.format_exception(type(exception), exception, exception.__traceback__))
    stats = memory.get_gpu_memory_stats()
    try:
        pipe.send((outcome, value, error, stats))
    except Exception as exception:  # the value cannot be pickled, say
        pipe.send(("failed", None, f"its result cannot be sent: {exception}", stats))
    pipe.close()


class ExperimentSeriesRunner:
    """Runs functions one after another, each in a process of its own (spawned, so that none inherits CUDA):

        runner = neap.ExperimentSeriesRunner()
        results = runner.run([("small", train, {"width": 64}), ("large", train, {"width": 512})])

    A function must be importable (defined at a module's top level) and its result picklable. One that fails, runs out of
    memory, is killed or takes longer than `timeout` seconds does not keep the next from running.
    """

    def __init__(self, timeout: Optional[float] = None, stop_on_failure: bool = False) -> None:
        self.timeout, self.stop_on_failure = timeout, stop_on_failure
        self.results: list[ExperimentResult] = []

    def run(self, experiments: Iterable[tuple[str, Callable[..., Any], dict[str, Any]]]) -> list[ExperimentResult]:
        """Runs them all; the results in their order."""
        self.results = []
        for name, function, named in experiments:
            self.results.append(self.run_one(name, function, **named))
            if self.stop_on_failure and self.results[-1].outcome != "ok":
                break
        return self.results

    def run_one(self, name: str, function: Callable[..., Any], *arguments: Any, **named: Any) -> ExperimentResult:
        """Runs one, cleans up before and after, and waits until its process is gone."""
        memory.clear_gpu_memory()
        context = multiprocessing.get_context("spawn")
        ours, theirs = context.Pipe(duplex=False)
        process = context.Process(target=_child, args=(theirs, function, arguments, named), name=name)
        log.info("Experiment %s: begins", name)
        began = time.monotonic()
        try:
            process.start()
        except (pickle.PicklingError, AttributeError, TypeError) as exception:
            theirs.close()
            ours.close()
            return ExperimentResult(name, "failed", None, f"cannot be sent to a process: {exception}", 0.0, None, None)
        theirs.close()
        answer: Any = None
        late = not ours.poll(self.timeout)
        if not late:
            try:
                answer = ours.recv()
            except (EOFError, OSError):  # it ended without a word
                pass
        if late:
            self._end(process)
        process.join(10)
        if process.is_alive():  # it has answered and does not go
            self._end(process)
        ours.close()
        result = self._result(name, answer, late, process.exitcode, time.monotonic() - began)
        process.close()
        log.info("Experiment %s: %s after %.1f s", name, result.outcome, result.seconds)
        return result

    def _end(self, process: Any) -> None:
        process.terminate()
        process.join(5)
        if process.is_alive():
            process.kill()
            process.join()

    def _result(self, name: str, answer: Any, late: bool, code: Optional[int], seconds: float) -> ExperimentResult:
        if late:
            text = f"took longer than {self.timeout} s"
            return ExperimentResult(name, "timeout", None, text, seconds, None, code)
        if answer is None:
            how = f"exit status {code}" if code is None or code >= 0 else f"killed by {signal.Signals(-code).name}"
            return ExperimentResult(name, "killed", None, f"ended without a result: {how}", seconds, None, code)
        outcome, value, error, stats = answer
        return ExperimentResult(name, outcome, value, error, seconds, stats, code)
