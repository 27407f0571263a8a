"""The facts that a story gives about a person and about a thing."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class Person:
    kind: str = ""
    place: str | None = None
    been: list[str] = field(default_factory=list)
    mood: int = 0  # -1 sad, 0 unknown, 1 happy
    hungry: bool | None = None
    wet: bool = False
    sorrows: list[tuple[str, str]] = field(default_factory=list)  # (why, thing)

    def arrive(self, p: str) -> None:
        self.place = p
        if p not in self.been:
            self.been.append(p)


@dataclass
class Thing:
    # ("person", Anna), ("thing", box), ("spot", under the bed), ("place", park), ("gone", "")
    where: tuple[str, str] | None = None
    owner: str | None = None
    not_at: list[str] = field(default_factory=list)
    state: str = ""  # broken or mended
    lost_by: list[str] = field(default_factory=list)

    def move(self, *where: str) -> None:
        self.where, self.not_at = where or None, []
