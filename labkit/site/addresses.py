"""Addresses of the course on the web, if it has any: its repository, and the site itself."""

from __future__ import annotations

import os
import re
import subprocess

from labkit.course.paths import ROOT

REMOTE = re.compile(
    r"(?:\w+://)?(?:[^@/]+@)?([\w.-]+\.\w+)(?::\d+)?[:/]([\w./~-]+?)(?:\.git)?/?"
)


def repository() -> str:
    """Return the page of the repository: from GitHub's workflow, else of the remote "origin";
    "" if it is not on a server."""
    if name := os.environ.get("GITHUB_REPOSITORY"):
        return f"{os.environ.get('GITHUB_SERVER_URL', 'https://github.com')}/{name}"
    command = ["git", "-C", str(ROOT), "remote", "get-url", "origin"]
    try:
        remote = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return ""
    return page_of_remote(remote.strip())


def page_of_remote(remote: str) -> str:
    """git@host:owner/name.git -> https://host/owner/name; "" for a folder on this machine."""
    found = REMOTE.fullmatch(remote)
    return f"https://{found[1]}/{found[2]}" if found else ""


def site_address() -> str:
    """Return the address at which GitHub publishes the site, with "/" at its end; "" outside
    its workflow."""
    owner, _, name = os.environ.get("GITHUB_REPOSITORY", "").partition("/")
    return f"https://{owner.lower()}.github.io/{name}/" if name else ""


def notebook_address(name: str) -> str:
    """Return the address of a notebook in the repository, if its server is a known one."""
    page = repository()
    return f"{page}/blob/HEAD/notebooks/{name}.ipynb" if "github" in page else ""
