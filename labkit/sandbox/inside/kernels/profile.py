"""The memory accesses of interpreted kernels: loads, stores, bytes, programs, races.

with profiled() as seen:
    rms_norm(x, weight)
print(seen)
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from torch import Tensor

NOBODY, SEVERAL = -1, -2
FAR = 2**31  # bytes


class OutsideMemory(IndexError):
    """A program loads or stores outside of its kernel's tensors."""


@dataclass
class Traffic:
    """The accesses of one launch's programs to one tensor.

    loaded, stored   bytes; a number that is loaded twice counts twice
    """

    name: str
    start: int  # the address of its first number
    itemsize: int
    readers: np.ndarray  # the program that loaded a number; NOBODY, SEVERAL
    writers: np.ndarray
    loaded: int = 0
    stored: int = 0

    @classmethod
    def of(cls, name: str, tensor: Tensor) -> Traffic:
        sizes = zip(tensor.shape, tensor.stride(), strict=True)
        last = sum((size - 1) * stride for size, stride in sizes)
        length = last + 1 if tensor.numel() else 0
        readers, writers = np.full((2, length), NOBODY)
        return cls(name, tensor.data_ptr(), tensor.element_size(), readers, writers)

    @property
    def end(self) -> int:
        return self.start + len(self.writers) * self.itemsize


@dataclass
class Launch:
    """One start of a kernel.

    loads, stores   how often a program runs a load, a store: instructions, not numbers
    races           in words: places that one program stores and another one loads or stores
    """

    kernel: str
    tensors: list[Traffic]
    # numbered in order of appearance
    programs: dict[tuple[int, ...], int] = field(default_factory=dict)
    loads: int = 0
    stores: int = 0
    races: dict[str, str] = field(default_factory=dict)
    modules: set[str] = field(default_factory=set)  # modules whose functions it has called

    @property
    def loaded(self) -> int:
        return sum(tensor.loaded for tensor in self.tensors)

    @property
    def stored(self) -> int:
        return sum(tensor.stored for tensor in self.tensors)

    def note(self, program: tuple[int, ...], places: np.ndarray, kind: str, size: int) -> None:
        """Count the addresses that a program loads, stores or updates, size bytes at each."""
        number = self.programs.setdefault(program, len(self.programs))
        self.loads += kind != "stores"
        self.stores += kind != "loads"
        left = np.unique(places) if kind == "stores" else places
        if len(left) < len(places) and places.size > 1:
            self.races.setdefault("lanes", self._twice(program, places))
        for tensor in self.tensors:
            inside = (left >= tensor.start) & (left < tensor.end)
            if not inside.any():
                continue
            index = (left[inside] - tensor.start) // tensor.itemsize
            tensor.loaded += size * len(index) * (kind != "stores")
            tensor.stored += size * len(index) * (kind != "loads")
            self._races(tensor, index, program, number, kind)
            left = left[~inside]
            if not left.size:
                return
        if left.size:
            raise OutsideMemory(self._outside(program, left, kind))

    def _races(
        self, tensor: Traffic, index: np.ndarray, program: Any, number: int, kind: str
    ) -> None:
        if kind == "updates":  # atomic: any number of programs may
            return
        others = tensor.writers[index]
        clash = index[(others != NOBODY) & (others != number)]
        if clash.size:
            text = f"program {shown(program)} {kind} {tensor.name}[{clash[0]}], which another "
            self.races.setdefault(f"{kind} {tensor.name}", text + "program has stored")
        if kind == "loads":
            before = tensor.readers[index]
            tensor.readers[index] = np.where(
                (before == NOBODY) | (before == number), number, SEVERAL
            )
            return
        readers = tensor.readers[index]
        clash = index[(readers != NOBODY) & (readers != number)]
        if clash.size:
            text = f"program {shown(program)} stores {tensor.name}[{clash[0]}], which another "
            self.races.setdefault(f"overwrites {tensor.name}", text + "program has loaded")
        tensor.writers[index] = number

    def _twice(self, program: tuple[int, ...], places: np.ndarray) -> str:
        found, counts = np.unique(places, return_counts=True)
        place = found[counts > 1][0]
        for tensor in self.tensors:
            if tensor.start <= place < tensor.end:
                index = (place - tensor.start) // tensor.itemsize
                return f"two lanes of program {shown(program)} store {tensor.name}[{index}]"
        return f"two lanes of program {shown(program)} store one place"

    def _outside(self, program: tuple[int, ...], places: np.ndarray, kind: str) -> str:
        """Return a sentence on the nearest tensor, and how far off the first place is."""
        place = int(places[0])
        gaps = [max(t.start - place, place - t.end, 0) for t in self.tensors]
        if min(gaps) > FAR:  # the nearest tensor varies from run to run
            where = f"program {shown(program)} of {self.kernel} {kind} a place"
            return f"{where} more than 2^31 bytes from all tensors: an address is wrong"
        near = self.tensors[int(np.argmin(gaps))]
        index, last = (place - near.start) // near.itemsize, len(near.writers) - 1
        return (
            f"program {shown(program)} of {self.kernel} {kind} {near.name}[{index}], "
            f"but its places are 0 to {last}: a mask or an address is wrong"
        )


def shown(program: tuple[int, ...]) -> str:
    """Return (3,) of (3, 0, 0), as many axes as a reader needs."""
    axes = 1 + max((n for n, index in enumerate(program) if index), default=0)
    return str(tuple(int(index) for index in program[:axes]))


class Profile:
    """The launches of the kernels that ran while it was open."""

    def __init__(self) -> None:
        self.launches: list[Launch] = []

    @property
    def programs(self) -> int:
        return sum(len(launch.programs) for launch in self.launches)

    @property
    def loads(self) -> int:
        return sum(launch.loads for launch in self.launches)

    @property
    def stores(self) -> int:
        return sum(launch.stores for launch in self.launches)

    @property
    def bytes_loaded(self) -> int:
        return sum(launch.loaded for launch in self.launches)

    @property
    def bytes_stored(self) -> int:
        return sum(launch.stored for launch in self.launches)

    @property
    def bytes_moved(self) -> int:
        return self.bytes_loaded + self.bytes_stored

    @property
    def races(self) -> list[str]:
        return [text for launch in self.launches for text in launch.races.values()]

    def of(self, tensor: Tensor) -> tuple[int, int]:
        """Return the bytes that were loaded from a tensor's memory, and stored there."""
        place = Traffic.of("", tensor)
        found = [
            each
            for launch in self.launches
            for each in launch.tensors
            if place.start <= each.start < place.end
        ]
        return sum(each.loaded for each in found), sum(each.stored for each in found)

    def report(self, inputs: Mapping[str, Tensor]) -> dict[str, Any]:
        """Return, for a check, how many times each input is loaded and stored, the bytes stored
        elsewhere, and the first race."""
        found: dict[str, Any] = {}
        elsewhere = self.bytes_stored
        for name, tensor in inputs.items():
            size = max(1, tensor.numel() * tensor.element_size())
            loaded, stored = self.of(tensor)
            found[f"times {name} is loaded"] = round(loaded / size, 4)
            found[f"times {name} is stored"] = round(stored / size, 4)
            elsewhere -= stored
        found["bytes stored"] = elsewhere
        found["a race"] = next(iter(self.races), "none")
        return found

    def __str__(self) -> str:
        lines = [f"{'kernel and tensor':32}{'loaded':>12}{'stored':>12}  bytes"]
        for launch in self.launches:
            counts = f"{len(launch.programs)} programs, {launch.loads} loads, "
            lines.append(f"{launch.kernel}: {counts}{launch.stores} stores")
            lines += [
                f"  {tensor.name:30}{tensor.loaded:12,}{tensor.stored:12,}"
                for tensor in launch.tensors
                if tensor.loaded or tensor.stored
            ]
        return "\n".join([*lines, *(f"race: {text}" for text in self.races)])


first_program = 0
_listening: list[Profile] = []
_running: list[Launch] = []


@contextmanager
def profiled() -> Iterator[Profile]:
    """While open, every launch is recorded in the profile."""
    seen = Profile()
    _listening.append(seen)
    try:
        yield seen
    finally:
        _listening.remove(seen)


@contextmanager
def numbered_from(number: int) -> Iterator[None]:
    """While open, the first program of axis 0 has this number, and each tensor begins as many
    rows before its place: a kernel meets the addresses of a tensor too large for memory."""
    global first_program
    before, first_program = first_program, number
    try:
        yield
    finally:
        first_program = before


@contextmanager
def launched(kernel: str, tensors: Mapping[str, Tensor]) -> Iterator[None]:
    """While open, accesses are counted for this launch of a kernel."""
    launch = Launch(kernel, [Traffic.of(name, tensor) for name, tensor in tensors.items()])
    _running.append(launch)
    try:
        yield
    finally:
        _running.pop()
        for seen in _listening:
            seen.launches.append(launch)


def is_running() -> bool:
    return bool(_running)


def is_first_use(module: str) -> bool:
    """Whether the launch that runs has not called a function of this module yet."""
    modules = _running[-1].modules
    is_first = module not in modules
    modules.add(module)
    return is_first


def access(
    program: tuple[int, ...], places: np.ndarray, mask: np.ndarray, dtype: Any, kind: str
) -> None:
    """Record an access that a program is about to make. Raises OutsideMemory."""
    if not _running:
        return
    places = np.broadcast_to(places, np.broadcast_shapes(places.shape, mask.shape))
    active = places[np.broadcast_to(mask, places.shape)].astype(np.int64)
    _running[-1].note(program, active, kind, max(1, dtype.primitive_bitwidth // 8))
