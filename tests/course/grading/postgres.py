"""A PostgreSQL server of a test's own: loopback, a temporary folder, an unprivileged user."""

import os
import pwd
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path


def binaries() -> Path | None:
    """The folder with initdb and postgres, where the machine has one."""
    found = shutil.which("postgres")
    places = [Path(found).parent] if found else []
    places += sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    return next(
        (p for p in places if (p / "initdb").exists() and (p / "postgres").exists()), None
    )


def user() -> pwd.struct_passwd:
    """PostgreSQL refuses to run as root."""
    if os.geteuid() != 0:
        return pwd.getpwuid(os.geteuid())
    return pwd.getpwnam("nobody")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Server:
    def __init__(self, folder: Path):
        self.folder, self.bin, self.user = folder / "postgres", binaries(), user()
        self.process = None
        self.port = free_port()
        self.url = f"postgresql+psycopg2://grader@127.0.0.1:{self.port}/postgres"

    def _run(self, name, *arguments):
        start = subprocess.Popen if name == "postgres" else subprocess.run
        options = {"cwd": self.folder, "env": {"PATH": os.environ["PATH"], "LC_ALL": "C"}}
        if os.geteuid() == 0:
            options |= {"user": self.user.pw_uid, "group": self.user.pw_gid, "extra_groups": []}
        with (self.folder / "log").open("a") as log:
            return start([str(self.bin / name), *arguments], stdout=log, stderr=log, **options)

    def create(self):
        self.folder.mkdir(parents=True)
        if os.geteuid() == 0:
            os.chown(self.folder, self.user.pw_uid, self.user.pw_gid)
        arguments = ("-D", "data", "-U", "grader", "-A", "trust", "-N", "-E", "UTF8")
        done = self._run("initdb", *arguments)
        assert done.returncode == 0, (self.folder / "log").read_text()

    def start(self):
        options = ("-D", "data", "-p", str(self.port), "-h", "127.0.0.1", "-k", "")
        small = ("-F", "-c", "shared_buffers=16MB", "-c", "max_connections=20")
        self.process = self._run("postgres", *options, *small)
        for _ in range(200):
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", self.port)) == 0:
                    return self
            assert self.process.poll() is None, (self.folder / "log").read_text()
            time.sleep(0.1)
        raise TimeoutError((self.folder / "log").read_text())

    def stop(self):
        if self.process is not None:
            self.process.send_signal(signal.SIGINT)
            self.process.wait(20)
