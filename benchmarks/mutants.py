"""How sharp the hidden checks are: the share of small faults in the reference that they find.

    python benchmarks/mutants.py rmsnorm            a lab; all labs, if none is named
    python benchmarks/mutants.py --exercise 1.2

A mutant that survives is a hole in the checks, or a right answer. Right answers are listed,
with the reason, in solutions/equivalents/X.diff, in the form in which survivors are printed:

    ## RMSNorm.forward                          the function that the next ones are in

    more precise than promised, and the result is the same
    - wide = hidden_states.float()              the line of the reference, as ast.unparse has it
    + wide = hidden_states.double()             what the mutant has instead

A reason holds for all pairs below it. The exit status is 1 if a mutant survives.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import resource
import signal
import sys
import warnings
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import groupby
from multiprocessing.connection import Connection, wait
from typing import Any, TypeVar

import torch
from mutations import Key, Mutant, mutants

from labkit.author.reference import reference, reference_block
from labkit.checks.declared import prepared_checks
from labkit.checks.mistakes import Oracle, edits_of
from labkit.checks.runner import BrokenCheck, CheckResult, run_check, run_checks
from labkit.course import cells
from labkit.course.paths import SOLUTIONS
from labkit.course.syllabus import LABS, Exercise, Lab, find_exercise, find_lab
from labkit.sandbox.inside.limits import MEMORY_BYTES, mapped_bytes
from labkit.sandbox.inside.perform import perform

CPU_SECONDS = 10  # seconds for a mutant, plus a multiple of the reference's time
SLEEPS = 20  # the limit of wall time is longer: the machine may be busy
Item = TypeVar("Item")
Found = list[tuple[Mutant, str]]  # a mutant and its verdict
HEADING = "exercise   made  killed  crashed  endless  equivalent  survived   rate"
EQUIVALENT = "equivalent"


class Verdict(Enum):
    KILLED = "killed"  # a check saw a wrong value
    CRASHED = "crashed"  # killed, by an error where the reference raises none
    ENDLESS = "endless"  # killed, by the limit on its time
    SURVIVED = "survived"
    BROKEN = "the check itself fails"  # a fault of the course


@dataclass
class Trial:
    """The hidden checks of an exercise with all right answers, which forked children share."""

    lab: Lab
    exercise: Exercise
    seed: str

    def __post_init__(self) -> None:
        self.oracle = Oracle(self.lab)
        self.checks = prepared_checks("hidden", self.lab.module, self.exercise, self.seed)
        self.module = cells.plain(reference(self.lab))
        before = resource.getrusage(resource.RUSAGE_SELF).ru_utime
        perfect = self.oracle.reference
        right = run_checks(self.exercise, self.checks, perfect, perfect)
        if not right.passed:
            failure = right.broken or right.first_failure
            raise RuntimeError(f"the reference fails its own checks: {failure}")
        seconds = resource.getrusage(resource.RUSAGE_SELF).ru_utime - before
        self.cpu_seconds = int(CPU_SECONDS + 10 * seconds)

    def namespace(self, mutant: Mutant) -> dict[str, Any]:
        """The lab's module of the reference with the mutant in it."""
        source = cells.with_block(self.module, self.exercise, mutant.cell)
        name = f"solutions.{self.lab.module}"
        names: dict[str, Any] = {"__name__": name, "__package__": "solutions"}
        exec(compile(source, "the mutant", "exec", dont_inherit=True), names)
        return names

    def verdict(self, mutant: Mutant) -> Verdict:
        """Whether any check fails"""
        try:
            names = self.namespace(mutant)
        except Exception:
            return Verdict.CRASHED
        for check in self.checks:
            try:
                found = run_check(check, lambda c: perform(c, names), self.oracle.reference)
            except BrokenCheck:
                return Verdict.BROKEN
            if not found.passed:
                return self.cause(found)
        return Verdict.SURVIVED

    def cause(self, failed: CheckResult) -> Verdict:
        """Whether the mutant raised where the reference does not."""
        for call, got in zip(failed.check.calls, failed.outcomes, strict=False):
            if got.failure and not self.oracle.reference(call).failure:
                return Verdict.CRASHED
        return Verdict.KILLED


def in_children(
    work: Callable[[Item], Any], items: Sequence[Item], cpu_seconds: int, jobs: int
) -> Iterator[tuple[Item, Any]]:
    """Each item with what `work` makes of it in a child; None where that was killed for its
    time, its memory or a fault of its own."""
    forked = multiprocessing.get_context("fork")
    waiting, running = deque(items), dict[Connection, tuple[Item, Any]]()
    while waiting or running:
        while waiting and len(running) < jobs:
            item = waiting.popleft()
            ours, theirs = forked.Pipe(duplex=False)
            child = forked.Process(target=_child, args=(theirs, work, item, cpu_seconds))
            child.start()
            theirs.close()
            running[ours] = item, child
        for ours in wait(list(running)):
            item, child = running.pop(ours)
            try:
                answer = ours.recv()
            except EOFError:
                answer = None
            child.join()
            ours.close()
            yield item, answer


def _child(theirs: Connection, work: Callable[[Item], Any], item: Item, seconds: int) -> None:
    memory = mapped_bytes() + MEMORY_BYTES
    resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 5))
    signal.alarm(SLEEPS * seconds)
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    theirs.send(work(item))


def equivalents_of(lab: Lab) -> dict[Key, str]:
    """{key of a mutant: why no check can tell it from the reference}"""
    path = SOLUTIONS / "equivalents" / f"{lab.module}.diff"
    return parsed(path.read_text("utf-8")) if path.exists() else {}


def parsed(text: str) -> dict[Key, str]:
    found: dict[Key, str] = {}
    scope, reason, lines = "", "", list[str]()
    for line in [*text.splitlines(), "## "]:
        if line[:2] in ("- ", "+ "):
            lines.append(line)
            continue
        found |= {(scope, *pair): reason for pair in edits_of(lines)}
        lines.clear()
        if line.startswith("## "):
            scope = line[3:]
        elif line.strip():
            reason = line
    return found


def tried(lab: Lab, exercise: Exercise, seed: str, jobs: int) -> Found:
    """Run the mutants of an exercise; return each with its Verdict or "equivalent"."""
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
    """Print results as they come; return whether no mutant survived."""
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
    """The surviving mutants, in the form of solutions/equivalents/X.diff"""
    left = [(m, v) for m, v in found if v in (Verdict.SURVIVED.value, Verdict.BROKEN.value)]
    for scope, group in groupby(left, lambda pair: pair[0].scope):
        yield f"\n## {scope}"
        for mutant, verdict in group:
            yield f"\n{verdict}: {mutant.rule}\n{mutant.diff}"


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("labs", nargs="*", help="such as rmsnorm; all, if none is named")
    parser.add_argument("--exercise", help="only this one, such as 1.2")
    parser.add_argument("--seed", default="mutants", help="of the checks' numbers")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    options = parser.parse_args(arguments)
    labs, only = [find_lab(name) for name in options.labs] or LABS, None
    if options.exercise:
        lab, exercise = find_exercise(options.exercise)
        labs, only = [lab], exercise.id
    return 0 if show(labs, only, options.seed, options.jobs) else 1


if __name__ == "__main__":
    sys.exit(main())
