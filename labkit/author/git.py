"""The learners' edition as a git repository, to which each newer edition is one more commit.

The branch `edition` holds the editions as they were built. The checked-out branch has them,
too, with a teacher's own commits in between.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

from labkit.author.reference import BuildError

BRANCH = "edition"
SETTINGS = (
    *("user.name=TinyLLM", "user.email=tinyllm@localhost", "init.defaultBranch=main"),
    *("core.autocrlf=false", "commit.gpgSign=false", f"core.hooksPath={os.devnull}"),
)


def is_edition(folder: Path) -> bool:
    """Whether the folder is a repository that `build --learners` has made."""
    if shutil.which("git") is None or not (folder / ".git").exists():
        return False
    return not _run(folder, "rev-parse", "-q", "--verify", f"refs/heads/{BRANCH}").returncode


def commit_edition(edition: Path, folder: Path, is_new: bool) -> None:
    """Commit the files of an edition; without git, a new folder does not become a repository.

    edition    the files
    folder     the repository
    """
    if shutil.which("git") is None:
        return
    if is_new:
        _git(folder, "init", "-q", "--template=")
    index = {
        "GIT_DIR": str((folder / ".git").resolve()),
        "GIT_WORK_TREE": str(edition),
        "GIT_INDEX_FILE": str(edition.with_name(f"{edition.name}.index")),
    }
    try:
        _git(edition, "add", "-A", **index)
        tree = _git(edition, "write-tree", **index)
    finally:
        Path(index["GIT_INDEX_FILE"]).unlink(missing_ok=True)
    before = [] if is_new else [_git(folder, "rev-parse", BRANCH)]
    if not before or _git(folder, "rev-parse", f"{BRANCH}^{{tree}}") != tree:
        words = "A newer edition" if before else "The course, as it was given out"
        parents = [word for each in before for word in ("-p", each)]
        commit = _git(folder, "commit-tree", tree, *parents, "-m", words)
        _git(folder, "update-ref", f"refs/heads/{BRANCH}", commit)
    if is_new:
        _git(folder, "reset", "-q", BRANCH)
        return
    merge = _run(folder, "merge", "-q", "--no-edit", BRANCH)
    if merge.returncode:
        _run(folder, "merge", "--abort")
        raise BuildError(
            f"the newer edition is in the branch {BRANCH} of {folder}, and what was changed "
            f"there by hand does not go with it: `git merge {BRANCH}` in it, settle what git "
            f"lists, commit\n{(merge.stderr or merge.stdout).strip()}"
        )


def pack(folder: Path) -> Path:
    """Write a zip beside the folder with all committed files, without `.git`, as a learner may
    unpack it into a repository of their own."""
    base = folder.resolve()
    path = base.with_name(f"{base.name}.zip")
    if is_edition(folder):
        _git(
            folder, "archive", "--format=zip", f"--prefix={base.name}/", "-o", str(path), "HEAD"
        )
    else:
        shutil.make_archive(str(base), "zip", root_dir=base.parent, base_dir=base.name)
    return path


def _git(folder: Path, *words: str, **variables: str) -> str:
    """Run a git command and return its output. Errors: BuildError if it fails"""
    done = _run(folder, *words, **variables)
    if done.returncode:
        raise BuildError(f"`git {words[0]}` in {folder}: {done.stderr.strip()}")
    return done.stdout.strip()


def _run(folder: Path, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    environment: Mapping[str, str] = {
        key: value for key, value in os.environ.items() if not key.startswith("GIT_")
    } | variables
    settings = [word for each in SETTINGS for word in ("-c", each)]
    return subprocess.run(
        ["git", *settings, *words], cwd=folder, env=environment, capture_output=True, text=True
    )
