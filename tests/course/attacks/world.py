"""The targets of attacks: files, listeners and processes, and the changes made to them."""

from __future__ import annotations

import os
import re
import secrets
import selectors
import signal
import socket
import subprocess
import threading
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from labkit.course.paths import ROOT

from . import Attack

CONTENT = "what a classmate handed in, {token}\n"
THEN = 1_000_000_000  # when victims were last changed


def stray_file(name: str) -> Path:
    return Path(f"/tmp/tinyllm-attack-{name}")


class World:
    """Targets for a set of attacks, as a context.

    folder    a new folder for all of it
    badge     processes with this text in their environment are learners'
    """

    def __init__(self, folder: Path, attacks: Iterable[Attack], badge: str):
        self.folder, self.badge = folder, badge
        self.attacks = {attack.name: attack for attack in attacks}
        self.token = secrets.token_hex(12)  # part of every secret; must appear nowhere else
        self.marks, self.victims = folder / "marks", folder / "victims"
        self.socket_path = str(folder / "s")
        self.heard: set[str] = set()
        self.sleepers: dict[str, subprocess.Popen] = {}

    def __enter__(self) -> World:
        for path in (self.marks, self.victims):
            path.mkdir(parents=True)
            path.chmod(0o777)
        for name, attack in self.attacks.items():
            self._victim(name)
            if "aim.pid" in attack.source:
                self.sleepers[name] = subprocess.Popen(["sleep", "600"])
        self.listeners = [
            socket.create_server(("127.0.0.1", 0)),
            socket.socket(socket.AF_UNIX),
        ]
        self.tcp, unix = self.listeners
        unix.bind(self.socket_path)
        unix.listen()
        self.bell, self.other_end = socket.socketpair()
        self.thread = threading.Thread(target=self._listen, daemon=True)
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.bell.close()
        self.thread.join()
        for sleeper in self.sleepers.values():
            sleeper.kill()
            sleeper.wait()
        for pid in self.left():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for name in self.attacks:
            stray_file(name).unlink(missing_ok=True)

    def aim(self, name: str) -> dict[str, object]:
        """The table that this attack's cell gets: in the worst case it knows everything."""
        return {
            "name": name,
            "root": str(ROOT),
            "mark": str(self.marks / name),
            "victim": str(self.victims / name),
            "stray": str(stray_file(name)),
            "pid": self.sleepers[name].pid if name in self.sleepers else 0,
            "grader": os.getpid(),
            "tcp": self.tcp.getsockname()[1],
            "unix": self.socket_path,
        }

    def traces(self, name: str) -> list[str]:
        """The changes that the attack with this name made to the world."""
        sleeper = self.sleepers.get(name)
        found = {
            "it made a file": (self.marks / name).exists(),
            "it left a file behind": stray_file(name).exists(),
            "it changed a file of others": self._changed(name),
            "a listener was called": any(
                re.search(rf"\b{name}\b", text) for text in self.heard
            ),
            "a process of others was ended": bool(sleeper and sleeper.poll() is not None),
        }
        return [text for text, happened in found.items() if happened]

    def left(self) -> list[int]:
        """Processes of learners that still run."""
        return [
            int(path.name)
            for path in Path("/proc").glob("[0-9]*")
            if self._is_learners(path) and int(path.name) != os.getpid()
        ]

    def _is_learners(self, path: Path) -> bool:
        with suppress(OSError):
            words = (path / "environ").read_bytes()
            state = (path / "stat").read_text().rpartition(")")[2].split()[0]
            return b"USER=learner" in words and self.badge.encode() in words and state != "Z"
        return False

    def _victim(self, name: str) -> None:
        path = self.victims / name
        path.write_text(CONTENT.format(token=self.token))
        path.chmod(0o600)
        os.utime(path, (THEN, THEN))

    def _changed(self, name: str) -> bool:
        path = self.victims / name
        if not path.exists():
            return True
        now = path.stat()
        same = path.read_text() == CONTENT.format(token=self.token)
        whole = now.st_mode & 0o777 == 0o600 and now.st_mtime == THEN and now.st_nlink == 1
        return not (same and whole and now.st_uid == os.getuid())

    def _listen(self) -> None:
        with selectors.DefaultSelector() as selector:
            for listener in [*self.listeners, self.other_end]:
                selector.register(listener, selectors.EVENT_READ)
            while True:
                for key, _ in selector.select():
                    if key.fileobj is self.other_end:
                        for listener in [*self.listeners, self.other_end]:
                            listener.close()
                        return
                    self._hear(key.fileobj)

    def _hear(self, listener: socket.socket) -> None:
        with suppress(OSError):
            caller, _ = listener.accept()
            with caller:
                caller.settimeout(5)
                self.heard.add(caller.recv(200).decode(errors="replace"))
