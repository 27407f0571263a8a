"""A JupyterHub of a test's own, on loopback: one read-only installation for two learners, who
are users of the system where that can be arranged."""

import json
import os
import pwd
import shutil
import subprocess
import sys
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path
from urllib.request import Request, urlopen

from tornado.httpclient import HTTPRequest
from tornado.ioloop import IOLoop
from tornado.websocket import websocket_connect

from labkit.author.edition import write_learners
from labkit.course.paths import ROOT
from labkit.sandbox.inside.limits import package_folders
from tests.course.grading.postgres import free_port

TOKEN, PROXY = "only-for-this-test", "configurable-http-proxy"
IS_ROOT = os.name == "posix" and os.geteuid() == 0
STRANGER = {"user": "nobody", "group": "nogroup", "extra_groups": []} if IS_ROOT else {}
HUB = """\
load_subconfig({shipped!r})
c.JupyterHub.bind_url = "http://127.0.0.1:{ports[0]}"
c.JupyterHub.hub_port = {ports[1]}
c.ConfigurableHTTPProxy.api_url = "http://127.0.0.1:{ports[2]}"
c.JupyterHub.authenticator_class = "dummy"
c.JupyterHub.spawner_class = "{spawner}"
c.SimpleLocalProcessSpawner.home_dir_template = "{folder}/home/{{username}}"
c.Spawner.cmd = [{python!r}, "-m", "jupyterhub.singleuser"]
c.Spawner.start_timeout = c.Spawner.http_timeout = 180
c.Spawner.environment |= {{"PATH": "{scripts}:/usr/bin:/bin"}}
c.JupyterHub.services = [{{"name": "test", "api_token": "{token}"}}]
c.JupyterHub.load_roles = [{{"name": "test", "services": ["test"],
    "scopes": ["admin:users", "admin:servers", "access:servers"]}}]
"""


def lacking() -> str:
    """The requirement of a hub that is missing; "" if none is."""
    if find_spec("jupyterhub") is None:
        return "jupyterhub is not installed"
    if shutil.which(PROXY) is None:
        return f"{PROXY} is not on the PATH (npm install -g {PROXY})"
    return "" if usable_python() else "no Python here may be run by every user"


def usable_python() -> str | None:
    """A Python of this version that a learner may run."""
    name = f"python{sys.version_info.major}.{sys.version_info.minor}"
    for path in (
        os.path.realpath(sys.executable),
        f"/usr/bin/{name}",
        f"/usr/local/bin/{name}",
    ):
        if os.access(path, os.X_OK):
            try:
                done = subprocess.run([path, "-c", "import venv"], cwd="/", **STRANGER)
            except PermissionError:
                continue
            if done.returncode == 0:
                return path
    return None


class Hub:
    """Starts with `with`; `learners` are the names of its two users."""

    def __init__(self):
        self.folder = Path(tempfile.mkdtemp(prefix="tinyllm-hub-"))
        self.folder.chmod(0o755)
        self.learners = ("tinyllm-ann", "tinyllm-bob")
        self.exchange = self.folder / "exchange"
        self.installation = self.folder / "installation" / "tinyllm"
        self.ports = [free_port() for _ in range(3)]
        self.process = None
        self.made = []  # users of the system

    def __enter__(self):
        try:
            self.install()
            self.make_homes()
            self.start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        if self.process:
            self.process.terminate()  # it stops its learners' servers
            self.process.wait(60)
        for learner in self.made:
            subprocess.run(["userdel", learner], check=True)
        subprocess.run(["chmod", "-R", "u+w", str(self.folder)], check=True)
        shutil.rmtree(self.folder, ignore_errors=True)

    def install(self):
        """Install as GRADING.md says: a virtual environment, the learners' edition, the
        exchange."""
        venv = self.folder / "venv"
        command = [usable_python(), "-m", "venv", "--without-pip", str(venv)]
        subprocess.run(command, check=True)
        self.python = venv / "bin" / "python"
        write_learners(self.installation)
        (packages,) = venv.glob("lib/python*/site-packages")
        places = [self.installation, *package_folders()]
        (packages / "all.pth").write_text("\n".join(map(str, places)))
        layout = [str(self.python), "setup.py", "-q", "--version"]  # as pip runs it
        subprocess.run(layout, cwd=self.installation, check=True, capture_output=True)
        for name in ("nbgrader", "tinyllm"):
            script = {"nbgrader": "nbgrader", "tinyllm": "labkit.cli"}[name]
            (venv / "bin" / name).write_text(
                f'#!/bin/sh\nexec {self.python} -m {script} "$@"\n'
            )
            (venv / "bin" / name).chmod(0o755)
        jupyter = venv / "etc" / "jupyter"
        jupyter.mkdir(parents=True)
        config = (ROOT / "hub" / "nbgrader_config.py").read_text()
        config = config.replace("/srv/nbgrader/exchange", str(self.exchange))
        (jupyter / "nbgrader_config.py").write_text(config)
        pages = {"nbgrader.server_extensions.assignment_list": True}
        pages = {"ServerApp": {"jpserver_extensions": pages}}
        (jupyter / "jupyter_server_config.json").write_text(json.dumps(pages))
        self.exchange.mkdir()
        self.exchange.chmod(0o777)
        subprocess.run(["chmod", "-R", "a-w,a+rX", str(self.installation)], check=True)

    def make_homes(self):
        (self.folder / "home").mkdir()
        for learner in self.learners:
            home = self.folder / "home" / learner
            home.mkdir(mode=0o700)
            if IS_ROOT:
                subprocess.run(["useradd", "-M", "-d", str(home), learner], check=True)
                self.made.append(learner)
                user = pwd.getpwnam(learner)
                os.chown(home, user.pw_uid, user.pw_gid)

    def start(self):
        spawner = "jupyterhub.spawner.LocalProcessSpawner" if IS_ROOT else "simple"
        text = HUB.format(
            ports=self.ports, spawner=spawner, folder=self.folder, python=str(self.python),
            scripts=self.python.parent, token=TOKEN,
            shipped=str(ROOT / "hub" / "jupyterhub_config.py"),
        )  # fmt: skip
        (self.folder / "hub").mkdir()
        (self.folder / "hub" / "jupyterhub_config.py").write_text(text)
        with (self.folder / "hub" / "log").open("w") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "jupyterhub"], cwd=self.folder / "hub",
                stdout=log, stderr=log,
            )  # fmt: skip
        self.wait_for(lambda: self.call("GET", "hub/api/") is not None)
        for learner in self.learners:
            self.call("POST", f"hub/api/users/{learner}")
            self.call("POST", f"hub/api/users/{learner}/server")
        for learner in self.learners:
            where = f"hub/api/users/{learner}"
            self.wait_for(lambda where=where: self.call("GET", where)["servers"][""]["ready"])

    def wait_for(self, is_done, seconds=240):
        for _ in range(4 * seconds):
            try:
                if is_done():
                    return
            except (OSError, KeyError):
                pass
            assert self.process.poll() is None, self.log()
            time.sleep(0.25)
        raise AssertionError(self.log())

    def log(self):
        return (self.folder / "hub" / "log").read_text()[-4000:]

    def call(self, method, address, /, **content):
        """The answer of the hub, or of a learner's server, to a request."""
        data = json.dumps(content).encode() if content else None
        headers = {"Authorization": f"token {TOKEN}", "Content-Type": "application/json"}
        url = f"http://127.0.0.1:{self.ports[0]}/{address}"
        with urlopen(Request(url, data, headers, method=method), timeout=180) as answer:
            return json.loads(answer.read() or b"null")

    def page(self, learner, action):
        """A button of nbgrader's assignment list: fetch, submit, fetch_feedback."""
        content = {"course_id": "tinyllm", "assignment_id": "01_rmsnorm"}
        found = self.call("POST", f"user/{learner}/assignments/{action}", **content)
        assert found["success"], found
        return found["value"]

    def run(self, learner, *codes, path="01_rmsnorm"):
        """Run cells in a new kernel of a learner, in this folder of their home; what they
        print."""
        model = {"kernel": {"name": "python3"}, "name": "", "type": "notebook"}
        name = f"{path}/01_rmsnorm.ipynb"
        made = self.call("POST", f"user/{learner}/api/sessions", path=name, **model)
        kernel = made["kernel"]["id"]
        url = f"ws://127.0.0.1:{self.ports[0]}/user/{learner}/api/kernels/{kernel}/channels"
        request = HTTPRequest(url, headers={"Authorization": f"token {TOKEN}"})
        printed = IOLoop().run_sync(lambda: printed_by(request, codes), timeout=300)
        self.call("DELETE", f"user/{learner}/api/sessions/{made['id']}")
        return printed


async def printed_by(request, codes):
    socket, printed = await websocket_connect(request), []
    for number, code in enumerate(codes):
        header = {"msg_id": str(number), "msg_type": "execute_request", "session": "test",
                  "username": "", "version": "5.3"}  # fmt: skip
        content = {"code": code, "silent": False, "store_history": True, "allow_stdin": False,
                   "user_expressions": {}, "stop_on_error": True}  # fmt: skip
        message = {"header": header, "parent_header": {}, "metadata": {}, "content": content}
        await socket.write_message(json.dumps(message | {"channel": "shell", "buffers": []}))
        text, is_done = "", False
        while not is_done:
            reply = json.loads(await socket.read_message())
            if reply["parent_header"].get("msg_id") == str(number):
                found = reply["content"]
                text += found.get("text", "") if reply["msg_type"] == "stream" else ""
                text += found.get("data", {}).get("text/plain", "")
                text += "\n".join(found.get("traceback", ()))
                is_done = found.get("execution_state") == "idle"
        printed.append(text)
    socket.close()
    return printed
