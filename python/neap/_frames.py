"""Finds where this Python keeps its frames, for src/torch/watch_stacks.cpp, which reads them without Python's lock.

No public function of Python gives a thread's frames without its lock, and each version has the fields at other places. So this
module searches for them: in frames whose code objects and instructions are known, and through /proc/self/mem, which returns an
error where a plain read would end the process. A layout counts only if it gives all frames of a second, deeper stack.
"""

from __future__ import annotations

import ctypes
import os
import struct
import sys
import types
from collections.abc import Iterator
from typing import Any, Callable, TypeVar

_WORD = 8
_THREAD_BYTES = 512  # bytes of a thread's state that are searched
_FRAME_BYTES = 128
_CODE_BYTES = 256
_TAGS = 7  # the lowest bits of a pointer, in which newer versions keep marks
_OWN = 8  # functions of the search that may run above the known frames
_SKIPPED = 3  # frames of the interpreter itself that may lie between two of Python's

_T = TypeVar("_T")


class Layout(ctypes.Structure):
    """struct FrameLayout of src/torch/watch_stacks.h."""

    _fields_ = [
        ("code_type", ctypes.c_uint64),
        *((name, ctypes.c_int32) for name in (
            "thread_frame", "thread_second", "frame_code", "frame_back", "frame_at", "at_scale", "code_start", "code_file",
            "code_name", "text_length", "text_state", "text_ascii", "text_other",
        )),
        ("state_mask", ctypes.c_uint32),
        ("state", ctypes.c_uint32 * 4),
    ]  # fmt: skip


class Unknown(Exception):
    """Raised if this Python's frames were not found."""


class _Memory:
    """This process's own memory."""

    def __init__(self) -> None:
        self.fd = os.open("/proc/self/mem", os.O_RDONLY | os.O_CLOEXEC)

    def close(self) -> None:
        os.close(self.fd)

    def words(self, address: int, size: int) -> tuple[int, ...]:
        """Returns the words that can be read."""
        if address % _WORD or not 4096 <= address < 1 << 47:
            return ()
        try:
            found = os.pread(self.fd, size, address)
        except (OSError, OverflowError):
            return ()
        return struct.unpack(f"={len(found) // _WORD}Q", found[: len(found) // _WORD * _WORD])

    def word(self, address: int) -> int:
        return next(iter(self.words(address, _WORD)), 0)


def _offsets(words: tuple[int, ...], wanted: Callable[[int], bool]) -> Iterator[int]:
    return (i * _WORD for i, word in enumerate(words) if wanted(word))


def _one(what: str, found: Iterator[_T]) -> _T:
    for item in found:
        return item
    raise Unknown(f"{what} is not where it is in the Pythons that neap knows")


def _deeper(levels: int, function: Callable[[list[types.FrameType]], _T]) -> _T:
    """Calls the function, through C, with the frames that called this, the innermost first."""
    if levels:
        return _deeper(levels - 1, function)
    frames = []
    frame: types.FrameType | None = sys._getframe()
    while frame is not None:
        frames.append(frame)
        frame = frame.f_back
    return next(map(function, [frames]))


class _Search:
    def __init__(self, memory: _Memory, frames: list[types.FrameType], thread: int) -> None:
        self.memory = memory
        self.frames = frames
        self.thread = thread

    def _follow(self, address: int, code: int, back: int, at_most: int) -> list[int]:
        """Returns the addresses of the frames, as far as they are found."""
        found: list[int] = []
        skipped = 0
        while address and len(found) < at_most and skipped <= _SKIPPED:
            if self.memory.word(address + code) & ~_TAGS == id(self.frames[len(found)].f_code):
                found.append(address)
                skipped = 0
            else:
                skipped += 1
            address = self.memory.word(address + back)
        return found

    def _innermost(self, first: int, second: int) -> int:
        """Returns the frame of this call, if these offsets lead to frames. Calls no Python function: after it has returned, the
        frame of its caller's next call is there."""
        at = self.thread + first
        for offset in (0, second) if second >= 0 else (0,):
            if not 4096 <= at + offset < 1 << 47:
                return 0
            try:
                at = int.from_bytes(os.pread(self.memory.fd, _WORD, at + offset), sys.byteorder)
            except OSError:
                return 0
        return at

    def chain(self, layout: Layout) -> list[int]:
        """Fills in how frames are linked."""
        for second in range(-_WORD, 3 * _WORD, _WORD):
            for first in range(0, _THREAD_BYTES, _WORD):
                start = self._innermost(first, second)
                for back in range(0, _FRAME_BYTES, _WORD) if start != self.thread else ():
                    for code, address in self._below(start, back):
                        found = self._follow(address, code, back, len(self.frames))
                        if len(found) == len(self.frames):
                            layout.thread_frame = first
                            layout.thread_second = second
                            layout.frame_code = code
                            layout.frame_back = back
                            return found
        raise Unknown("the chain of frames is not where it is in the Pythons that neap knows")

    def _below(self, address: int, back: int) -> list[tuple[int, int]]:
        """Returns the places (offset, address) at which frames below chain()'s name the first known code object."""
        found = []
        own: set[int] = set()  # the offsets at which chain()'s own code object is named
        for _ in range(_OWN):
            words = self.memory.words(address, _FRAME_BYTES)
            codes = [word & ~_TAGS for word in words]
            found += [(o, address) for o in own if o // _WORD < len(codes) and codes[o // _WORD] == id(self.frames[0].f_code)]
            own.update(i * _WORD for i, code in enumerate(codes) if code == id(_Search.chain.__code__))
            address = words[back // _WORD] if len(words) > back // _WORD else 0
        return found

    def instruction(self, layout: Layout, chain: list[int]) -> None:
        """Finds the offset of the instruction in a frame, by frames that are in a call and whose instruction is known."""
        known = [(address, frame.f_code, frame.f_lasti) for address, frame in zip(chain, self.frames)]
        for offset in range(0, _FRAME_BYTES, _WORD):
            starts = {self.memory.word(address + offset) - id(code) - last for address, code, last in known}
            if len(starts) == 1 and 0 < next(iter(starts)) < _CODE_BYTES:
                layout.frame_at = offset
                layout.code_start = starts.pop()
                return
        for offset in range(0, _FRAME_BYTES, 4):
            for scale in (1, 2):
                if all(self._int(address + offset) * scale == last for address, _, last in known):
                    layout.frame_at = offset
                    layout.at_scale = scale
                    return
        raise Unknown("a frame's instruction is not where it is in the Pythons that neap knows")

    def _int(self, address: int) -> int:
        word = self.memory.word(address & ~7)
        return word >> 32 if address % _WORD else word & 0xFFFFFFFF


def _code(memory: _Memory, layout: Layout, code: types.CodeType) -> None:
    words = memory.words(id(code), _CODE_BYTES)
    layout.code_type = id(types.CodeType)
    layout.code_file = _one("a code object's file", _offsets(words, lambda word: word == id(code.co_filename)))
    layout.code_name = _one("a code object's name", _offsets(words, lambda word: word == id(code.co_name)))


def _texts(memory: _Memory, layout: Layout) -> None:
    """Fills in the layout of str, from one of each of the four kinds, none of them shared."""
    texts = ["".join(letter for _ in range(21)) for letter in ("q", "\xe9", "\u20ac", "\U0001f600")]
    raw = [b"".join(struct.pack("=Q", word) for word in memory.words(id(text), 192)) for text in texts]
    widths = (1, 1, 2, 4)
    characters = [ord(text[0]).to_bytes(width, sys.byteorder) * 21 for text, width in zip(texts, widths)]
    places = [found.find(wanted) for found, wanted in zip(raw, characters)]
    layout.text_ascii = places[0]
    layout.text_other = places[1]
    layout.text_length = raw[0].find(struct.pack("=Q", 21))
    layout.text_state = layout.text_length + 2 * _WORD  # after the hash
    states = [struct.unpack_from("=I", found, layout.text_state)[0] for found in raw]
    # Three bits have the width, the next bit says that the characters follow, and the next that they are ASCII.
    fits = [s for s in range(24) if [state >> s & 31 for state in states] == [1 | 8 | 16, 1 | 8, 2 | 8, 4 | 8]]
    at = _one("the kind of a str", iter(fits))
    layout.state_mask = (7 | 16) << at
    layout.state[:] = [state & layout.state_mask for state in states]
    if min(places) < 0 or len(set(places[1:])) > 1 or layout.text_length < 0:
        raise Unknown("a str is not laid out as in the Pythons that neap knows")


def find() -> Layout:
    """Finds the layout. Raises Unknown, and OSError if /proc/self/mem cannot be read."""
    if not getattr(sys, "_is_gil_enabled", lambda: True)():
        raise Unknown("this Python has no global lock")
    layout = Layout()
    thread = ctypes.pythonapi.PyGILState_GetThisThreadState
    thread.restype = ctypes.c_void_p
    memory = _Memory()
    try:
        _code(memory, layout, _Search.chain.__code__)  # its name and its qualified name differ
        _texts(memory, layout)

        def search(frames: list[types.FrameType]) -> None:
            found = _Search(memory, frames, thread() or 0)
            chain = found.chain(layout)
            found.instruction(layout, chain)

        _deeper(5, search)
    finally:
        memory.close()
    return layout


def check(read: Callable[[Any, int], int]) -> None:
    """Checks that `read`, which writes this thread's frames as text, gives the same frames as Python. Raises Unknown."""
    room = 1 << 17

    def compare(frames: list[types.FrameType]) -> None:
        text = ctypes.create_string_buffer(room)
        read(text, room)
        parts = text.value.decode("utf-8", "replace").split("\t")[1:]
        found = iter(list(zip(parts[0::3], parts[1::3], parts[2::3])))
        for frame in frames[:100]:
            code = frame.f_code
            wanted = (code.co_filename[-90:], str(frame.f_lineno or 0), code.co_name[-90:])
            if not any((file[-90:], line, name[-90:]) == wanted for file, line, name in found):
                raise Unknown(f"the frame of {code.co_name} was not read as it is")

    _deeper(9, compare)
