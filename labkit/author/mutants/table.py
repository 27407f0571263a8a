"""What `tinyllm mutants` prints: an exercise a row, then what survived, then some reports."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from random import Random

import torch

from labkit.author.mutants.equivalents import equivalents_of
from labkit.author.mutants.making import Key, Mutant, mutants_of
from labkit.author.mutants.trial import Trial, Verdict, in_children
from labkit.core.syllabus import Exercise, Lab

HEADING = "exercise   made  killed  crashed  endless  equivalent  survived   rate"


@dataclass
class Tally:
    """What became of an exercise's mutants; reports are those of a few that were killed."""

    made: int = 0
    verdicts: Counter[Verdict] = field(default_factory=Counter)
    equivalent: int = 0
    survivors: list[Mutant] = field(default_factory=list)
    not_equivalent: list[Mutant] = field(default_factory=list)  # listed, and yet killed
    breaking: list[Mutant] = field(default_factory=list)  # a check itself failed
    not_made: list[Key] = field(default_factory=list)  # listed, but there is none like it
    reports: list[tuple[Mutant, list[str]]] = field(default_factory=list)

    def __add__(self, other: Tally) -> Tally:
        verdicts = self.verdicts + other.verdicts
        survivors = self.survivors + other.survivors
        equivalent = self.equivalent + other.equivalent
        return Tally(self.made + other.made, verdicts, equivalent, survivors)

    @property
    def rate(self) -> float:
        """Of mutants that do not crash and are not equivalent: the share that was killed."""
        killed = self.verdicts[Verdict.KILLED] + self.verdicts[Verdict.ENDLESS]
        return killed / (killed + len(self.survivors)) if killed else 0.0

    def row(self, name: str) -> str:
        crashed, endless = self.verdicts[Verdict.CRASHED], self.verdicts[Verdict.ENDLESS]
        killed = self.verdicts[Verdict.KILLED] + crashed + endless
        return (
            f"{name:<8} {self.made:>6} {killed:>7} {crashed:>8} {endless:>8} "
            f"{self.equivalent:>11} {len(self.survivors):>9}  {self.rate:>6.1%}"
        )


def tally(lab: Lab, exercise: Exercise, seed: str, sample: int, jobs: int) -> Tally:
    """Try all mutants of an exercise, and ask for the reports of a sample of the killed."""
    torch.set_num_threads(1)
    trial, made, listed = (
        Trial(lab, exercise, seed),
        mutants_of(lab, exercise),
        equivalents_of(lab),
    )
    found, killed = Tally(len(made)), list[Mutant]()
    for mutant, answer in in_children(trial.verdict, made, trial.cpu_seconds, jobs):
        verdict = answer or Verdict.ENDLESS
        if verdict is Verdict.BROKEN:
            found.breaking.append(mutant)
        elif verdict is not Verdict.SURVIVED:
            found.verdicts[verdict] += 1
            killed += [mutant] if verdict is Verdict.KILLED else []
            found.not_equivalent += [mutant] if mutant.key in listed else []
        elif mutant.key in listed:
            found.equivalent += 1
        else:
            found.survivors.append(mutant)
    keys = {mutant.key for mutant in made}
    own = [key for key in listed if key[0].split(".")[0] in exercise.symbols]
    found.not_made = [key for key in own if key not in keys]
    killed.sort(key=made.index)
    found.survivors.sort(key=made.index)
    chosen = Random(seed).sample(killed, min(sample, len(killed)))
    if chosen:
        found.reports = list(in_children(trial.report, chosen, 10 * trial.cpu_seconds, jobs))
    return found


def show(
    labs: Sequence[Lab], only: str | None, count: Callable[[Lab, Exercise], Tally]
) -> bool:
    """Print everything as it comes; returns whether nothing is left to do."""
    print(HEADING)
    total = Tally()
    done = True
    for lab in labs:
        exercises = [e for e in lab.exercises if only in (None, e.id)]
        of_lab = Tally()
        for exercise in exercises:
            found = count(lab, exercise)
            of_lab += found
            print(found.row(exercise.id), flush=True)
            for line in (*problems(found), *reports(found)):
                print(line, flush=True)
            done = done and not [*problems(found)]
        if len(exercises) > 1:
            print(of_lab.row(f"lab {lab.number}"), flush=True)
        total += of_lab
    if len(labs) > 1:
        print(total.row("all"))
    return done


def problems(found: Tally) -> Iterator[str]:
    """What a developer has to see to."""
    yield from listing("survived", found.survivors)
    yield from listing("the check itself fails", found.breaking)
    yield from listing("listed as equivalent, but killed", found.not_equivalent)
    for scope, before, after in found.not_made:
        yield f"\nlisted as equivalent, but made no more: {scope}\n- {before}\n+ {after}"


def reports(found: Tally) -> Iterator[str]:
    """What learners would read, to be judged by a person."""
    for mutant, rows in found.reports:
        yield f"\n{mutant.scope}, killed:\n{mutant.diff}"
        yield "\n".join(f"  {row}" for row in rows or ["no report: it took too long"])


def listing(title: str, mutants: Sequence[Mutant]) -> Iterator[str]:
    """In the form of solutions/equivalents/X.diff."""
    for scope, group in groupby(mutants, lambda mutant: mutant.scope):
        yield f"\n## {scope}"
        for mutant in group:
            yield f"\n{title}: {mutant.rule}\n{mutant.diff}"
