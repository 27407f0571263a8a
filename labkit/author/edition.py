"""The editions that are made on demand: the instructor's notebooks, the learners' project."""

from __future__ import annotations

import json
import re
import shutil
from datetime import datetime
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory

from labkit.author import git
from labkit.author.build import skeletons, stubs
from labkit.author.owned_cells import (
    filled,
    notebook_path,
    read_notebook,
    serialised,
    written_answer,
)
from labkit.author.reference import BuildError, references
from labkit.author.translation.texts import page, with_docstrings
from labkit.course import sealed
from labkit.course.lang import EDITION, ENGLISH, speaking
from labkit.course.paths import GIVEN, LABKIT, ROOT, SOLUTIONS
from labkit.course.syllabus import LABS, NOTEBOOKS
from labkit.model.hub import SHIPPED

LEARNERS = (
    *("tinyllm/__init__.py", "solutions/__init__.py", "solutions/hints/*.md"),
    *(
        "labkit/**/*.py",
        "labkit/course/lang/*/*.po",
        "labkit/course/lang/*/*.ttf",
        "labkit/course/lang/*/OFL.txt",
        "labkit/course/labs/*.toml",
        "labkit/learner/figures/*.csv",
        "labkit/learner/figures/*.svg",
        "labkit/learner/lessons/*.json",
        "labkit/learner/lessons/*.safetensors",
    ),
    *("labkit/look/static/*.*", "labkit/look/static/*/*"),
    *("storyworld/**/*.py", "storyworld/*.t*"),
    *("training/*.py", "training/*.jinja", "training/*.json"),
    *(f"checkpoints/{name}/*" for name in SHIPPED),
    *("tests/visible/*.py", "tests/visible/*.json", "constraints.txt", "LICENSE"),
)
# parts of labkit/: the instructor's rooms, and the fast path, which works only with the
# reference
LEFT_OUT = ("author", "grading", "site", "model/fast.py")
# {file in learners/: its place in the edition}
LEARNERS_FILES = {
    "README.md": "README.md",
    "gitignore": ".gitignore",
    "setup.py": "setup.py",
    "fast.py": "labkit/model/fast.py",
}
COURSE_TOML = "course.toml"
KNOWN = ".written.json"  # a file in a course folder
STAMP = "%Y-%m-%d_%H-%M-%S-%f"  # the name of a backup
EXTRAS = ("hub",)  # extras of pyproject.toml that learners can use


def write_source(course: Path, force: bool = False) -> tuple[list[Path], list[Path]]:
    """Write the instructor's edition: source/LAB/LAB.ipynb with the reference in every answer,
    nbgrader_config.py, and an example of course.toml if there is none. `nbgrader
    generate_assignment` puts the course's points into the learners' notebooks.

    A file that a person edited since it was written stays as it is; with `force` it is
    replaced, and a copy is kept in backups/.

    Returns the notebooks that were written, and the edited files.
    """
    course, written, edited = course.resolve(), [], []
    backup = course / "backups" / f"{datetime.now():{STAMP}}"
    files = {"nbgrader_config.py": (ROOT / "nbgrader_config.py").read_bytes()}
    for lab in LABS:
        with speaking(ENGLISH):
            notebook = filled(lab, read_notebook(notebook_path(lab)), solved=True)
        files[f"source/{lab.name}/{lab.name}.ipynb"] = serialised(notebook)
    if not (course / COURSE_TOML).exists():
        _write(course / COURSE_TOML, (LABKIT / "author" / COURSE_TOML).read_bytes())
    known = _read_known(course / KNOWN)
    for name, content in files.items():
        path = course / name
        before = path.read_bytes() if path.exists() else content
        if before != content and known.get(name) != sha256(before).hexdigest():
            edited.append(path)
            if not force:
                continue
            _write(backup / name, before)
        if path.suffix == ".ipynb":
            written.append(path)
        _write(path, content)
        known[name] = sha256(content).hexdigest()
        _write(course / KNOWN, json.dumps(known, indent=1).encode())
    return written, edited


def _read_known(path: Path) -> dict[str, str]:
    """Return {file of a course: the hash of its content when the build wrote it last}."""
    try:
        return dict(json.loads(path.read_text("utf-8")))
    except (OSError, ValueError, TypeError):
        return {}


def write_learners(
    folder: Path, is_open: bool = False, zipped: bool = False, lang: str = ENGLISH
) -> list[Path]:
    """Write the project as a class gets it: without hidden checks and grading, with answers and
    mistakes sealed, and without any file that a learner writes into. In a folder with an older
    edition, the new one is a commit on top of it.

    is_open      leave the answers in plain text, for self-study
    zipped       pack it into one file beside it, too
    lang         its language, unless a learner sets another one

    Returns the folder, and the zip.
    """
    is_new = not (folder.exists() and any(folder.iterdir()))
    if not is_new and not git.is_edition(folder):
        raise BuildError(
            f"{folder} is neither empty nor an older edition for learners; name a new folder"
        )
    with TemporaryDirectory() as place:
        edition = Path(place)
        for pattern in LEARNERS:
            for path in sorted(ROOT.glob(pattern)):
                name = path.relative_to(ROOT).as_posix()
                if not name.startswith(tuple(f"labkit/{each}" for each in LEFT_OUT)):
                    _write(edition / name, path.read_bytes())
        if lang != ENGLISH:
            _write(edition / EDITION.relative_to(ROOT), lang.encode())
        with speaking(lang):
            _write_texts(edition, is_open)
        if is_new:
            shutil.copytree(edition, folder, dirs_exist_ok=True)
        git.commit_edition(edition, folder, is_new)
    return [folder, git.pack(folder)] if zipped else [folder]


def _write_texts(folder: Path, is_open: bool) -> None:
    """Write the derived and translated files: skeletons, notebooks, README, sealed answers."""
    derived = stubs(skeletons())
    _write(folder / derived.path.relative_to(ROOT), derived.content)
    for lab in NOTEBOOKS:  # empty, even if cells were filled in here
        path = notebook_path(lab)
        notebook = serialised(filled(lab, read_notebook(path)))
        _write(folder / GIVEN.name / path.name, notebook)
    for name, target in LEARNERS_FILES.items():
        text = (LABKIT / "author" / "learners" / name).read_text("utf-8")
        text = page(text) if target.endswith(".md") else text
        _write(folder / target, text.encode())
    _write(folder / "pyproject.toml", _project((ROOT / "pyproject.toml").read_text("utf-8")))
    _write_stand_ins(folder / "solutions", is_open)


def _write(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)


def _project(text: str) -> bytes:
    """Return pyproject.toml with only the learners' extras, without the developers' parts."""
    head, _, rest = text.partition("[project.optional-dependencies]\n")
    extras = [
        re.search(rf"^# [^\n]*\n{name} = \[.*?\]\n", rest, re.MULTILINE | re.DOTALL)[0]
        for name in EXTRAS
    ]
    scripts = rest[
        rest.index("[project.scripts]") : rest.index("[tool.setuptools.package-data]")
    ]
    return f"{head}[project.optional-dependencies]\n{''.join(extras)}\n{scripts}".encode()


def _write_stand_ins(folder: Path, is_open: bool) -> None:
    seal = str if is_open else sealed.encode
    labs = {lab.module: lab for lab in NOTEBOOKS}
    for path in references():
        text, lab = with_docstrings(path.read_text("utf-8")), labs.get(path.stem)
        if lab and not is_open:
            text = sealed.seal(text, f"Lab {lab.number}, {lab.title}")
        _write(folder / path.name, text.encode())
    for path in sorted((SOLUTIONS / "mistakes").glob("*.diff")):
        _write(folder / "mistakes" / path.name, sealed.encode(path.read_text("utf-8")).encode())
    for lab in LABS:  # only the model answers, as rubrics are for instructors
        found = ((each.id, written_answer(lab, each)["model answer"]) for each in lab.questions)
        text = "".join(f"## {name}\n### model answer\n{answer}\n\n" for name, answer in found)
        _write(folder / "answers" / f"{lab.module}.md", seal(text).encode())
