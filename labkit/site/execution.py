"""The notebooks with the reference in them, executed once and kept as long as nothing changes
that they show.

A notebook's key covers whole packages and not only the code that it calls: any change there
executes all notebooks again, which takes minutes and misses nothing."""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from importlib.metadata import version
from math import ceil
from pathlib import Path
from tempfile import TemporaryDirectory

import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError
from nbformat import NotebookNode

from labkit.author.owned_cells import filled, notebook_path, read_notebook
from labkit.author.reference import BuildError, reference
from labkit.course import cells
from labkit.course.files import hash_of, write_whole
from labkit.course.lang import FOLDER as LANG
from labkit.course.lang import language, speaking
from labkit.course.paths import CHECKPOINTS, LABKIT, ROOT, SOLUTIONS, TESTS
from labkit.course.syllabus import NOTEBOOKS, Lab
from labkit.grading.sample_class import solved
from labkit.look.notebook import WRITTEN as LOOK
from labkit.look.page import NAMES

CACHE = ROOT / "build" / "site"
SHOWN = (  # files that a notebook runs or reads
    *(LABKIT / room for room in ("course", "sandbox", "checks", "model", "learner")),
    ROOT / "storyworld",
    *(LABKIT / "look").glob("*.py"),
    *(SOLUTIONS, ROOT / "tinyllm", TESTS / "visible", CHECKPOINTS),
)
# of these and the catalogs only the notebook's own files, which have its name
OF_A_LAB = tuple(SOLUTIONS / name for name in ("answers", "hints", "mistakes", "variants"))
LONGEST = 1800  # seconds for one cell; lab 08 trains for some minutes


def execute(lab: Lab, run: Callable[[Lab], NotebookNode] | None = None) -> NotebookNode:
    """Return the lab's notebook with the reference's answers and the outputs of every cell.

    run    executes it, if it was not kept

    Errors: BuildError names a cell that raises an error
    """
    path = kept_at(lab, language())
    if path.exists():
        return nbformat.read(path, as_version=4)
    notebook = (run or in_a_kernel)(lab)
    for old in CACHE.glob(f"{lab.name}-{language()}-*.ipynb"):
        old.unlink()
    write_whole(path, nbformat.writes(notebook))
    return notebook


def kept_at(lab: Lab, name: str) -> Path:
    with speaking(name):
        return CACHE / f"{lab.name}-{name}-{key(lab)}.ipynb"


@contextmanager
def executing(
    labs: Sequence[Lab],
    spoken: Sequence[str],
    tell: Callable[[str], None],
    run: Callable[[Lab], NotebookNode] | None = None,
) -> Iterator[Callable[[Lab], NotebookNode]]:
    """Execute the notebooks that are not kept, in each language, one per processor at a time;
    yield a function that waits for a lab's notebook in the current language.

    tell    is called with a line about each notebook that is done
    """
    jobs = [(name, lab) for name in spoken for lab in labs]
    missing = [(name, lab) for name, lab in jobs if not kept_at(lab, name).exists()]
    total, started = len(missing), time.monotonic()

    def run_job(name: str, lab: Lab) -> NotebookNode:
        begun = time.monotonic()
        with speaking(name):
            notebook = execute(lab, run)
        if (name, lab) in missing:
            missing.remove((name, lab))
            rest, now = len(missing), time.monotonic()
            left = ceil((now - started) / (total - rest) * rest / 60)
            line = f"{lab.number} {lab.module} in {NAMES[name]}, {now - begun:.0f} s"
            tell(line + f"; about {left} min left" * bool(rest))
        return notebook

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        found = {(name, lab.name): pool.submit(run_job, name, lab) for name, lab in jobs}
        try:
            yield lambda lab: found[language(), lab.name].result()
        finally:
            pool.shutdown(cancel_futures=True)


def key(lab: Lab) -> str:
    """Return a hash of the notebook and of everything that can change its outputs."""
    files = [path for f in (*OF_A_LAB, LANG / language()) for path in f.glob(f"{lab.module}.*")]
    return hash_of(files, nbformat.writes(complete(lab)) + hash_shown(language()))[:16]


@cache
def hash_shown(language: str) -> str:
    """Return a hash of the files that every notebook runs or reads in a language."""
    versions = f"{sys.version_info[:2]} {version('torch')} {version('matplotlib')}"
    files = [path for folder in SHOWN for path in (folder, *folder.rglob("*"))]
    files = [p for p in files if p.is_file() and p.suffix not in (".pyc", ".po")]
    names = {lab.module for lab in NOTEBOOKS}
    catalogs = [p for p in (LANG / language).glob("*.po") if p.stem not in names]
    return hash_of([p for p in files if p.parent not in OF_A_LAB] + catalogs, versions)


def complete(lab: Lab) -> NotebookNode:
    """Return the learners' notebook, with the reference in its exercises."""
    return solved(filled(lab, read_notebook(notebook_path(lab))), lab)


def in_a_kernel(lab: Lab) -> NotebookNode:
    """Execute a notebook beside its own package, in which the earlier labs are finished."""
    with TemporaryDirectory(prefix="tinyllm-site-") as name:
        shutil.copytree(ROOT / "tinyllm", Path(name, "tinyllm"))
        for earlier in NOTEBOOKS[: NOTEBOOKS.index(lab)]:
            if earlier.exercises:
                text = cells.plain(reference(earlier))
                Path(name, "tinyllm", f"{earlier.module}.py").write_text(text, "utf-8")
        notebook = complete(lab)
        client = NotebookClient(
            notebook, timeout=LONGEST, kernel_name="python3",
            resources={"metadata": {"path": name}}, extra_arguments=["--log-level=ERROR"],
            coalesce_streams=True,  # a story comes word by word
        )  # fmt: skip
        client.log.setLevel("ERROR")  # a package of styles makes every logger print
        path = os.pathsep.join([name, str(ROOT)])
        settings = {"PYTHONPATH": path, LOOK: "look/index.html", "TINYLLM_LANG": language()}
        try:
            client.execute(
                env={**os.environ, **settings, "OMP_NUM_THREADS": "1"}
            )  # several run
        except CellExecutionError as error:
            raise BuildError(f"{lab.name}: {error}") from error
        text = nbformat.writes(notebook).replace(f"{name}{os.sep}", "")
        return nbformat.reads(text, as_version=4)
