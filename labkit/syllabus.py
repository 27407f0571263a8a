"""The one table of labs and exercises: names, symbols, points, minutes, what may not be used.

Notebook headings and badges, skeletons, the gradebook's maxima and the command line all
read it. Adding a lab to the course starts with a row here.
"""

from __future__ import annotations

from dataclasses import dataclass

ANY_LAB = ("transformers", "torch.compile", "torch.ops", "torch._C")


@dataclass(frozen=True)
class Exercise:
    """One graded cell: the learner defines `symbols` (the first one is its title)."""

    id: str
    symbols: tuple[str, ...]
    points: int
    minutes: int
    core: bool = True

    @property
    def title(self) -> str:
        return ", ".join(self.symbols)

    @property
    def slug(self) -> str:
        """The id as nbgrader and HTML accept it: 1.2 -> 1-2."""
        return self.id.replace(".", "-")

    @property
    def answer_cell(self) -> str:
        return f"ex-{self.slug}"

    @property
    def check_cell(self) -> str:
        return f"check-{self.slug}"


@dataclass(frozen=True)
class Question:
    """A written question, graded by hand."""

    id: str
    points: int

    @property
    def answer_cell(self) -> str:
        return f"written-{self.id.replace('.', '-')}"


@dataclass(frozen=True)
class Lab:
    number: str
    module: str
    title: str
    exercises: tuple[Exercise, ...]
    questions: tuple[Question, ...] = ()
    banned: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The notebook's and nbgrader's name for the lab: 01_rmsnorm."""
        return f"{self.number}_{self.module}"

    def exercise(self, exercise_id: str) -> Exercise:
        return next(e for e in self.exercises if e.id == exercise_id)

    @property
    def not_allowed(self) -> tuple[str, ...]:
        return self.banned + ANY_LAB


LABS = (
    Lab(
        "01",
        "rmsnorm",
        "Normalisation: from LayerNorm to RMSNorm",
        exercises=(
            Exercise("1.1", ("layer_norm",), points=4, minutes=10),
            Exercise("1.2", ("RMSNorm",), points=6, minutes=15),
            Exercise("1.3", ("residual",), points=4, minutes=10, core=False),
        ),
        questions=(Question("1.a", 2), Question("1.b", 2), Question("1.c", 2)),
        banned=(
            *("torch.nn.LayerNorm", "torch.nn.RMSNorm", "torch.nn.GroupNorm"),
            *("torch.nn.functional.layer_norm", "torch.nn.functional.rms_norm"),
            *("torch.nn.functional.group_norm", "torch.nn.functional.batch_norm"),
            *("torch.nn.functional.instance_norm", "torch.nn.modules.normalization"),
            *("torch.layer_norm", "torch.native_layer_norm", "torch.rms_norm"),
            *("torch.group_norm", "torch.batch_norm", "torch.instance_norm"),
            *("aten::native_layer_norm", "aten::_fused_rms_norm", "aten::native_group_norm"),
            *("aten::native_batch_norm", "aten::rms_norm", "aten::layer_norm"),
        ),
    ),
)


class UnknownName(LookupError):
    """A lab or exercise that does not exist; the message lists what does."""


def find_lab(name: str) -> Lab:
    """The lab called `name`: '01_rmsnorm', 'rmsnorm', '01' or '1'."""
    for lab in LABS:
        if name in (lab.name, lab.module, lab.number, lab.number.lstrip("0")):
            return lab
    known = ", ".join(lab.name for lab in LABS)
    raise UnknownName(f"there is no lab {name!r}; the labs are {known}")


def find_exercise(exercise_id: str) -> tuple[Lab, Exercise]:
    """The exercise with this id ('1.2') or symbol ('RMSNorm'), and its lab."""
    for lab in LABS:
        for exercise in lab.exercises:
            if exercise_id == exercise.id or exercise_id in exercise.symbols:
                return lab, exercise
    known = ", ".join(f"{e.id} {e.title}" for lab in LABS for e in lab.exercises)
    raise UnknownName(f"there is no exercise {exercise_id!r}; the exercises are {known}")
