"""The labs and exercises: names, symbols, points, minutes, bans, and the texts of predictions
and figures. One file describes each lab: labs/NUMBER_MODULE.toml.

Notebook headings and badges, skeletons, the gradebook's maxima and the command line all
read it. Adding a lab to the course starts with a file there.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from difflib import get_close_matches
from importlib.util import find_spec
from pathlib import Path, PurePath

from labkit.course.lang import said, tr

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

KINDS = (said("core"), said("stretch"), said("bug hunt"))  # kinds of exercises
HUNT = {"points": 1, "minutes": 5, "core": False, "hunt": True}  # no later lab needs it
ANY_LAB = (
    *("transformers", "torch.ops"),
    "matplotlib",  # needs a folder to write to, and grading has none
)


@dataclass(frozen=True)
class Exercise:
    """One graded cell: the learner defines `symbols` (joined, they are its title).

    hunt    the cell holds code with one thing wrong, which the learner repairs
    """

    id: str
    symbols: tuple[str, ...]
    points: float
    minutes: int
    core: bool = True
    hunt: bool = False

    @property
    def title(self) -> str:
        return ", ".join(self.symbols)

    @property
    def heading(self) -> str:
        """The first words of a report."""
        if self.hunt:
            return tr("Bug hunt {id}  {title}", id=self.id, title=self.title)
        return tr("Exercise {id}  {title}", id=self.id, title=self.title)

    @property
    def kind(self) -> str:
        return KINDS[2] if self.hunt else KINDS[0] if self.core else KINDS[1]

    @property
    def slug(self) -> str:
        """The id in a form that nbgrader and HTML accept: 1.2 -> 1-2."""
        return self.id.replace(".", "-")

    @property
    def answer_cell(self) -> str:
        return f"ex-{self.slug}"

    @property
    def check_cell(self) -> str:
        return f"check-{self.slug}"

    @property
    def grade_cell(self) -> str:
        """The name of its points in the gradebook."""
        return self.check_cell


@dataclass(frozen=True)
class Question:
    """A written question, graded by hand."""

    id: str
    points: float

    @property
    def answer_cell(self) -> str:
        return f"written-{self.id.replace('.', '-')}"

    @property
    def grade_cell(self) -> str:
        return self.answer_cell


@dataclass(frozen=True)
class Prediction:
    """A question to a learner before a cell runs.

    choices    {letter: text}
    right      the letter of the outcome
    why        one sentence
    """

    choices: dict[str, str]
    right: str
    why: str


@dataclass(frozen=True)
class Lab:
    """One lab: labs/NUMBER_MODULE.toml describes it. The keys of predictions and captions are
    the lab's number and the name of a figure or a cell: "1.cloud".
    """

    number: str
    module: str
    title: str
    exercises: tuple[Exercise, ...] = ()
    questions: tuple[Question, ...] = ()
    banned: tuple[str, ...] = ()
    graded: bool = True  # False: an exercise there is practice, and has no points
    needs: str = ""  # a package that not every machine has; without it nothing is checked
    predictions: dict[str, Prediction] = field(default_factory=dict, compare=False)
    captions: dict[str, str] = field(default_factory=dict, compare=False)  # {figure: caption}

    @property
    def name(self) -> str:
        """The notebook's and nbgrader's name for the lab: 01_rmsnorm."""
        return f"{self.number}_{self.module}"

    @property
    def minutes(self) -> int:
        """The minutes of its core exercises, which README, status, finish and the site show."""
        return sum(exercise.minutes for exercise in self.exercises if exercise.core)

    def exercise(self, exercise_id: str) -> Exercise:
        return next(e for e in self.exercises if e.id == exercise_id)

    @property
    def cells(self) -> set[str]:
        """The names of all graded cells of its notebook."""
        marked = {name for e in self.exercises for name in (e.answer_cell, e.check_cell)}
        return marked | {question.answer_cell for question in self.questions}

    @property
    def is_checkable(self) -> bool:
        """Whether the package that it needs is installed."""
        return not self.needs or find_spec(self.needs) is not None

    @property
    def not_allowed(self) -> tuple[str, ...]:
        return self.banned + ANY_LAB


def spellings(functions: Iterable[str]) -> Iterator[str]:
    """Yield the names under which torch may have a function: silu is also F.silu_."""
    for function in functions:
        for place in ("torch.", "torch.nn.functional."):
            yield from (f"{place}{function}", f"{place}{function}_")


def _read(path: Path) -> Lab:
    """Return the lab that a file NUMBER_MODULE.toml describes."""
    fields = tomllib.loads(path.read_text("utf-8"))
    number, _, module = path.stem.partition("_")
    return Lab(
        number,
        module,
        fields["title"],
        tuple(
            Exercise(**{**each, "symbols": tuple(each["symbols"])})
            for each in (
                *fields.get("exercises", ()),
                *(HUNT | hunt for hunt in fields.get("hunts", ())),
            )
        ),
        tuple(Question(**each) for each in fields.get("questions", ())),
        (*fields.get("banned", ()), *spellings(fields.get("banned_functions", ()))),
        fields.get("graded", True),
        fields.get("needs", ""),
        {
            name: Prediction(
                dict(zip("abcdef", each["choices"], strict=False)), each["right"], each["why"]
            )
            for name, each in fields.get("predictions", {}).items()
        },
        fields.get("captions", {}),
    )


FOLDER = Path(__file__).parent / "labs"
NOTEBOOKS = tuple(map(_read, sorted(FOLDER.glob("*.toml"))))
LABS = tuple(lab for lab in NOTEBOOKS if lab.graded)
PREDICTIONS = {name: each for lab in NOTEBOOKS for name, each in lab.predictions.items()}
CAPTIONS = {name: text for lab in NOTEBOOKS for name, text in lab.captions.items()}


class UnknownName(LookupError):
    """A lab or exercise that does not exist here; the message names similar ones."""

    def _render_traceback_(self) -> list[str]:
        """Let IPython show only the message."""
        return [str(self)]


def find_lab(name: str, labs: tuple[Lab, ...] = LABS) -> Lab:
    """The lab called `name`: '01_rmsnorm', 'rmsnorm', '01' or '1'. Raises UnknownName."""
    for lab in labs:
        if name in (lab.name, lab.module, lab.number, lab.number.lstrip("0")):
            return lab
    names = [form for lab in labs for form in (lab.module, lab.name)]
    near = get_close_matches(PurePath(name).stem.lower(), names, 1)
    raise UnknownName(
        tr(
            "there is no lab {name!r}; the labs are {known}{meant}",
            name=name,
            known=tr(", ").join(lab.name for lab in labs),
            meant=tr("; is it {near}?", near=near[0]) if near else "",
        )
    )


def find_question(name: str) -> tuple[Lab, Question] | None:
    """Return the lab and the written question with this id ('1.a'); None if there is none."""
    pairs = ((lab, question) for lab in LABS for question in lab.questions)
    return next((pair for pair in pairs if pair[1].id == name), None)


def find_exercise(exercise_id: str) -> tuple[Lab, Exercise]:
    """The lab and the exercise with this id ('1.2') or symbol. Raises UnknownName."""
    names = {}
    for lab in NOTEBOOKS:
        for exercise in lab.exercises:
            names |= dict.fromkeys((exercise.id, *exercise.symbols), (lab, exercise))
    if exercise_id in names:
        return names[exercise_id]
    start = exercise_id.partition(".")[0]
    labs = (lab for lab in NOTEBOOKS if start in (lab.number.lstrip("0"), lab.module))
    near = [exercise.id for lab in labs for exercise in lab.exercises]
    near = near or get_close_matches(exercise_id, names, 3)
    raise UnknownName(
        tr(
            "there is no exercise {exercise_id!r}; {known}`tinyllm status` lists all",
            exercise_id=exercise_id,
            known=tr("is it one of {known}? ", known=tr(", ").join(near)) if near else "",
        )
    )
