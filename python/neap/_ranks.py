"""Ranks of torch.distributed that train together: their agreements, and the exchange of their gradients, so that no rank waits for
one that has exited.

    agreement   one all_reduce (MAX) of one vector on the host, in a gloo group of its own with a time limit:
                  a word of each rank | samples of each rank | which parameters have a gradient somewhere | lack one somewhere
    word        FINE < OUT (of memory: all take the rung) < OVER (no more data: all end the epoch) < FAILED (all fail)

Every agreement is the same operation. So a rank that leaves, anywhere and for any reason, sends FAILED as its next word, and the
others see it at their next exchange. If its process has ended, they see a closed connection; if it hangs, they wait until the
time limit. The exchange of gradients allocates nothing of ours, and no rank waits in it before all have begun it. A rank that
fails in it leaves the process group as well, so that the others no longer wait.
"""

from __future__ import annotations

import datetime
import time
from collections.abc import Sequence
from typing import Any

from . import memory

FINE, OUT, OVER, FAILED = range(4)
_LEAVE_SECONDS = 5.0  # for the others to receive the last word; it also reaches them later while this process lives


class RankFailed(RuntimeError):
    """Another rank failed, is gone, or did not answer in time: this one cannot continue. Its own error is in its own log.

        try:
            training.train()
        except neap.RankFailed as error:      # on the ranks that did not fail
            sys.exit(str(error))
    """


class Ranks:
    """This process among those that train together; alone if torch.distributed is not in use."""

    def __init__(self, torch: Any, timeout_seconds: float) -> None:
        dist = torch.distributed
        self._dist: Any = dist if dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1 else None
        self._torch = torch
        self._timeout = datetime.timedelta(seconds=timeout_seconds)
        self.size: int = self._dist.get_world_size() if self._dist else 1
        self.rank: int = self._dist.get_rank() if self._dist else 0
        self._parameters: list[Any] = []
        self._group: Any = None
        self._vector: Any = None
        self._last: Any = None
        self._left = False
        self._host_waits = False

    # Beginning and end.

    def open(self, model: Any, facts: dict[str, Any], same_weights: bool) -> None:
        """Makes the group. Every rank must begin the same training at the same place: `facts` are compared. Unless all have the
        same weights (by DistributedDataParallel), every rank gets those of rank 0."""
        if self._dist is None:
            return
        self._left = False
        self._parameters = list(model.parameters())
        facts = {**facts, "parameters": len(self._parameters)}
        try:
            self._group = self._dist.new_group(backend="gloo", timeout=self._timeout)
            everyone: list[Any] = [None] * self.size
            self._dist.all_gather_object(everyone, facts, group=self._group)
        except Exception as error:
            raise RankFailed(f"not all ranks began to train within {self._seconds()}: {_line(error)}") from error
        if any(other != facts for other in everyone):
            self._left = True
            raise ValueError("the ranks were given different trainings: " + "; ".join(map(str, everyone)))
        self._vector = self._torch.zeros(2 * self.size + 2 * len(self._parameters), dtype=self._torch.int64)
        self._host_waits = self._dist.get_backend() == "gloo" or self._parameters[0].device.type == "cpu"
        if same_weights:
            return
        try:
            for tensor in [*self._parameters, *model.buffers()]:
                self._wait(self._dist.broadcast(tensor.data, 0, async_op=True))
        except BaseException:
            self._abort()
            raise

    def close(self) -> None:
        """Destroys the group. Idempotent."""
        group, self._group = self._group, None
        if group is not None and (self._last is None or self._last.is_completed()):
            try:
                self._dist.destroy_process_group(group)
            except Exception:  # it ended with its process group, which a failed exchange or the program destroyed
                pass

    def leave(self) -> None:
        """Sends the last word of a rank that fails, unless the others know already. Never raises; takes at most 5 s."""
        if self._group is None or self._left:
            return
        self._left = True
        try:
            self._fill(FAILED, 0, ())
            work = self._last = self._all_reduce(self._vector, async_op=True)
            end = time.monotonic() + _LEAVE_SECONDS
            while not work.is_completed() and time.monotonic() < end:
                time.sleep(0.01)
        except Exception:  # the others have exited
            pass

    # Agreement.

    def agree(self, word: int = FINE, number: int = 0, gradients: bool = False) -> tuple[int, list[int]]:
        """Returns the highest word, and the number of each rank. With `gradients`, ranks also exchange which parameters have a
        gradient. Raises RankFailed."""
        if self._dist is None:
            return word, [number]
        self._fill(word, number, self._parameters if gradients else ())
        try:
            self._all_reduce(self._vector)
        except Exception as error:
            self._left = True
            raise RankFailed(f"another rank is gone, or did not answer within {self._seconds()}: {_line(error)}") from error
        words = self._vector[: self.size].tolist()
        failed = [rank for rank, word in enumerate(words) if word == FAILED]
        if failed:
            self._left = True
            raise RankFailed(f"another rank failed ({', '.join(f'rank {rank}' for rank in failed)}): this one stops as well")
        return max(words), self._vector[self.size : 2 * self.size].tolist()

    def missing(self) -> list[Any] | None:
        """After an agreement with gradients, returns the parameters for which this rank lacks a gradient that another rank has.
        None if no rank lacks any."""
        if self._dist is None:
            return None
        some, lacked = self._vector[2 * self.size :].view(2, -1).bool()
        if not bool((some & lacked).any()):
            return None
        return [p for p, anywhere in zip(self._parameters, some.tolist()) if anywhere and p.grad is None]

    def exchange(self, share: float) -> None:
        """Makes each gradient the sum, over the ranks, of the rank's gradient times its share. All ranks have the same
        gradients."""
        if self._dist is None:
            return
        try:
            works = []
            try:
                for parameter in self._parameters:
                    if parameter.grad is not None:
                        parameter.grad.mul_(share)
                        works.append(self._dist.all_reduce(parameter.grad, async_op=True))
            except BaseException:
                self.leave()  # the others learn of it when they ask whether all have begun
                raise
            self.agree()
            for work in works:
                self._wait(work)
        except BaseException:
            self._abort()
            raise

    def _wait(self, work: Any) -> None:
        try:
            # gloo waits without a limit but its group's; NCCL waits on the stream, and a limit would make the host wait.
            work.wait(self._timeout) if self._host_waits else work.wait()
        except Exception as error:
            if memory.is_out_of_memory(error):
                raise
            text = f"another rank failed in an exchange, or is gone: {_line(error)}"
            raise RankFailed(text) from error

    def _abort(self) -> None:
        """Called when a collective failed half-way: the process group is unusable, and no rank may keep waiting in it. Sends
        nothing first: the end of a group waits for its work under way."""
        self._left = True
        self._group = None
        try:
            self._dist.destroy_process_group()
        except Exception:  # it has ended already
            pass

    def _all_reduce(self, vector: Any, async_op: bool = False) -> Any:
        return self._dist.all_reduce(vector, op=self._dist.ReduceOp.MAX, group=self._group, async_op=async_op)

    def _fill(self, word: int, number: int, parameters: Sequence[Any]) -> None:
        vector = [0] * len(self._vector)
        vector[self.rank] = word
        vector[self.size + self.rank] = number
        for index, parameter in enumerate(parameters):
            vector[2 * self.size + index + (0 if parameter.grad is not None else len(parameters))] = 1
        self._vector = self._torch.tensor(vector, dtype=self._torch.int64)

    def _seconds(self) -> str:
        return f"{self._timeout.total_seconds():g} s"


def _line(error: BaseException) -> str:
    return str(error).split("\n", 1)[0][:200]
