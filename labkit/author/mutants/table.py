"""What `tinyllm mutants` prints: a row per exercise, and below it what survived."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import groupby

import torch

from labkit.author.mutants.equivalents import equivalents_of
from labkit.author.mutants.making import Mutant, mutants
from labkit.author.mutants.trial import Trial, Verdict, in_children
from labkit.author.reference import reference_block
from labkit.course.syllabus import Exercise, Lab

HEADING = "exercise   made  killed  crashed  endless  equivalent  survived   rate"
EQUIVALENT = "equivalent"
Found = list[tuple[Mutant, str]]  # what became of each mutant, in the order of making


def tried(lab: Lab, exercise: Exercise, seed: str, jobs: int) -> Found:
    """What becomes of each mutant of an exercise: the value of a Verdict, or "equivalent"."""
    torch.set_num_threads(1)
    trial, made = Trial(lab, exercise, seed), list(mutants(reference_block(lab, exercise)))
    listed, found = equivalents_of(lab), {}
    for mutant, answer in in_children(trial.verdict, made, trial.cpu_seconds, jobs):
        verdict = answer or Verdict.ENDLESS
        known = verdict is Verdict.SURVIVED and mutant.key in listed
        found[mutant] = EQUIVALENT if known else verdict.value
    return [(mutant, found[mutant]) for mutant in made]


def row(name: str, found: Found) -> str:
    """The counts; the rate is that of mutants which neither crash nor are right answers."""
    count = Counter(verdict for _, verdict in found)
    seen = count["killed"] + count["endless"]
    rate = seen / (seen + count["survived"]) if seen else 0.0
    return (
        f"{name:<8} {len(found):>6} {seen + count['crashed']:>7} {count['crashed']:>8} "
        f"{count['endless']:>8} {count[EQUIVALENT]:>11} {count['survived']:>9}  {rate:>6.1%}"
    )


def show(labs: Sequence[Lab], only: str | None, seed: str, jobs: int) -> bool:
    """Print everything as it comes; returns whether nothing survived."""
    print(HEADING)
    total: Found = []
    for lab in labs:
        of_lab: Found = []
        for exercise in lab.exercises:
            if only in (None, exercise.id):
                found = tried(lab, exercise, seed, jobs)
                print("\n".join([row(exercise.id, found), *problems(found)]), flush=True)
                of_lab += found
        print(row(f"lab {lab.number}", of_lab), flush=True)
        total += of_lab
    if len(labs) > 1:
        print(row("all", total))
    return not list(problems(total))


def problems(found: Found) -> Iterator[str]:
    """What an author has to look at, in the form of solutions/equivalents/X.diff."""
    left = [(m, v) for m, v in found if v in (Verdict.SURVIVED.value, Verdict.BROKEN.value)]
    for scope, group in groupby(left, lambda pair: pair[0].scope):
        yield f"\n## {scope}"
        for mutant, verdict in group:
            yield f"\n{verdict}: {mutant.rule}\n{mutant.diff}"
