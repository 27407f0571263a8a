"""Bring learners' files to where nbgrader looks for them.

course/submitted/ID/LAB/LAB.ipynb        the attempt that counts, with timestamp.txt
course/collected/learners/ID/LAB/        every attempt, this one included
course/collected/unknown/NAME/LAB/       notebooks whose learner is not known
course/collected/manifest.json           where each attempt that counts came from
course/collected/needs_a_look.json       questions for a person (issues.py)
course/collected/last.csv                the outcome for each file of the last run

The latest attempt counts, and only a later one replaces it. We ask instead of guessing: if
layout and roster do not settle a notebook's owner, a teacher names it with `--as`. That costs a
command for some files, and no learner a grade."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from shutil import rmtree
from tempfile import TemporaryDirectory

from labkit.course.files import safe_id
from labkit.course.lang import tr
from labkit.course.syllabus import LABS, Lab
from labkit.grading.collect import issues
from labkit.grading.collect.attempts import Attempt, Claim, attempts_in, claim_called
from labkit.grading.collect.folders import CollectFolders
from labkit.grading.collect.labs import rank_in_project
from labkit.grading.collect.modules import blank_cells, lab_of_module
from labkit.grading.collect.roster import Roster, normalize_name, roster_of
from labkit.grading.nbgrader.course import Course
from labkit.grading.nbgrader.gradebook.connection import CourseError
from labkit.grading.platforms import platform_of

SPOOL = ".spool-"  # only one command at a time writes to a course folder


def collect(
    course: Course,
    sources: Sequence[Path],
    lab: Lab | None = None,
    roster_file: Path | None = None,
    replace_newer: bool = False,
    learner: str | None = None,
) -> list[issues.Line]:
    """Collect all submissions in `sources`.

    lab            only this one; it is also the lab of notebooks that name none
    roster_file    a CSV of the class
    replace_newer  let an earlier attempt replace a later one
    learner        the owner of all of it; by default the paths name the owners
    Returns a line for each file. Raises CourseError if nothing can be collected.
    """
    run = Run(course, lab, roster_of(course, roster_file), replace_newer, learner)
    collected = run.folders.collected
    for stale in collected.glob(f"{SPOOL}*"):  # left by a run that was killed
        rmtree(stale, ignore_errors=True)
    with TemporaryDirectory(prefix=SPOOL, dir=collected) as spool:
        attempts: list[Attempt] = []
        for source in sources:
            if learner is None and source.resolve().is_relative_to(collected.resolve()):
                raise CourseError(f"{source} is where collect keeps its own files")
            attempts += attempts_in(source, lab, Path(spool))
        run.deliver(attempts)
    return run.lines


class Run:
    """One run of collect: attempts become submissions, lines of the table, and open issues."""

    def __init__(
        self,
        course: Course,
        wanted: Lab | None,
        roster: Roster,
        replace_newer: bool,
        learner: str | None,
    ):
        self.root = course.root
        self.wanted, self.roster, self.learner = wanted, roster, learner
        self.replace_newer = replace_newer
        if learner is not None and safe_id(learner) != learner:
            raise CourseError(f"{learner!r} cannot be a learner's id")
        if learner is not None and roster.closed and learner not in roster.ids:
            raise CourseError(f"{learner} is not on the roster, so nothing is given to them")
        self.folders = CollectFolders(self.root)
        self.issues = issues.OpenIssues(self.root)
        self.issues.given |= roster.numbers
        self.lines: list[issues.Line] = []
        self.new: list[issues.OpenIssue] = []

    def deliver(self, attempts: Sequence[Attempt]) -> None:
        groups: dict[tuple[str, Lab], list[Attempt]] = defaultdict(list)
        rest: list[Attempt] = []
        for attempt in map(self.assigned if self.learner else self.with_learner, attempts):
            if not attempt.sha or self.wanted not in (None, attempt.lab):
                rest.append(attempt)
            elif attempt.learner:
                groups[attempt.learner, attempt.lab].append(attempt)
            else:
                self.ask(attempt, self.owner_problem(attempt))
        for (learner, lab), group in groups.items():
            modules = [
                a for a in rest if a.learner == learner and lab_of_module(a.parts) == lab
            ]
            self.deliver_group(group, modules)
        self.report_ungraded(rest)
        self.folders.write_manifest()
        self.issues.update(self.new)

    # The owner of a notebook

    def assigned(self, attempt: Attempt) -> Attempt:
        """Return the attempt with the learner that a person named. The choice is remembered for
        the file and for the platform's number of its owner."""
        before = self.folders.manifest.get(f"{self.learner}/{attempt.lab_name}", {})
        asked = {issue.sha: issue for issue in self.issues.entries if issue.claim}
        issue, claim, file = asked.get(attempt.sha), attempt.claim, attempt.file
        if claim is None:  # one of the copies that collect keeps
            claim = claim_called(before.get("claim", "")) or Claim(names=(self.learner,))
            file = issue.file if issue else before.get("source", file)
        if issue and (known := claim_called(issue.claim)):
            claim = replace(known, late=issue.late)
        self.issues.given[f"{claim.key}/{attempt.sha}"] = self.learner
        if claim.user:
            self.issues.given[claim.key] = self.learner
        return replace(attempt, claim=claim, file=file, learner=self.learner)

    def with_learner(self, attempt: Attempt) -> Attempt:
        """Return the attempt with its learner, if layout and roster settle who that is."""
        if (claim := attempt.claim) is None:
            return attempt
        given = self.issues.given.get(f"{claim.key}/{attempt.sha}")
        given = given or self.issues.given.get(claim.key)
        ids = {given} if given else self.roster.find(claim.key, claim.sure, claim.names)
        if len(ids) == 1:
            return replace(attempt, learner=next(iter(ids)))
        nobody = claim.platform.test_student
        if nobody and normalize_name(nobody) in map(normalize_name, claim.names):
            why = f"{claim.platform.name}'s test student"
            return replace(attempt, claim=None, sha="", reason=why, other=True)
        if ids or self.roster.closed or claim.names == ("",):
            return attempt
        return replace(attempt, learner=safe_id(claim.shown))

    def owner_problem(self, attempt: Attempt) -> str:
        """Return why the owner of a notebook is not known."""
        if (claim := attempt.claim) is None:
            odd = tr("its path is not like those of the others, or of no known layout")
            return attempt.reason or odd
        if ids := sorted(self.roster.find(claim.key, claim.sure, claim.names)):
            return tr("{shown} may be {names}", shown=attempt.shown, names=tr(" or ").join(ids))
        if claim.platform.table:
            return tr("not on the roster; {platform}'s {table} as --roster may tell",
                      platform=claim.platform.name, table=tr(claim.platform.table))  # fmt: skip
        return tr("not on the roster, so not graded")

    def rivals(self, attempt: Attempt, group: Sequence[Attempt]) -> set[str]:
        """Return the claims of others to what this learner handed in: of different notebooks,
        and different numbers of one platform, which are different people."""
        claim, learner, platform = attempt.claim, attempt.learner, attempt.claim.platform
        if self.issues.given.get(claim.key) == learner:
            return set()
        entry = self.folders.current(learner, attempt.lab_name)
        known = {entry["claim"]: entry["sha"]} if entry else {a.claim.key: a.sha for a in group}
        if platform.one_number:  # in all labs
            mine = [
                e for name, e in self.folders.manifest.items() if name.startswith(f"{learner}/")
            ]
            numbers = {e.get("claim", "") for e in mine} | self.roster.numbers_of(learner)
            known |= {key: "" for key in numbers if platform_of(key) == platform}

        def is_same(key: str, sha: str) -> bool:
            is_number = platform.has_users and platform_of(key) == platform
            return key == claim.key or (sha == attempt.sha and not is_number)

        return {key for key, sha in known.items() if not is_same(key, sha)}

    # One learner's notebooks of one lab

    def deliver_group(self, group: list[Attempt], modules: Sequence[Attempt]) -> None:
        """Let the latest count and keep all; ask if some may be somebody else's, or if no time
        tells which is the last.

        modules    code that the learner handed in beside them
        """
        new = group if self.learner else self.new_attempts(group)
        latest = max((attempt.order for attempt in new), default=[])
        is_timed = all(a.claim.platform is None or a.claim.platform.timed for a in new)
        last = [attempt for attempt in new if not is_timed or attempt.order == latest]
        if len({attempt.sha for attempt in last}) > 1:
            for attempt in last:
                self.ask(attempt, tr("{name} has several different notebooks of {lab}",
                                     name=attempt.learner, lab=attempt.lab.name))  # fmt: skip
            new = [attempt for attempt in new if attempt not in last]
            states = {attempt.sha: issues.EARLIER for attempt in new}
        else:
            states = {attempt.sha: issues.EARLIER for attempt in new}
            states |= {
                attempt.sha: self.folders.put(attempt, self.replace_newer, bool(self.learner))
                for attempt in last[-1:]
            }
        for attempt in {attempt.sha: attempt for attempt in new}.values():
            # copied last, so that after a kill it is new again
            copy = self.folders.keep(attempt)
            state, blank = states[attempt.sha], ""
            if modules and state in issues.COUNTS and not self.learner:
                blank = blank_cells(attempt.lab, copy.read_bytes(), modules[-1].code)
            if blank and f"{attempt.claim.key}/{attempt.sha}" not in self.issues.given:
                self.report_issue(attempt, issues.BLANK, blank)
            else:
                self.line(attempt, state)

    def new_attempts(self, group: list[Attempt]) -> list[Attempt]:
        """Return the attempts that may count and that nobody else claims; without those that
        were there when a person chose the one that counts."""
        found, ranks = [], [rank_in_project(attempt.parts) for attempt in group]
        for attempt, rank in zip(group, ranks, strict=True):
            current = self.folders.current(attempt.learner, attempt.lab.name)
            is_known = (
                current.get("chosen")
                and not self.replace_newer
                and (
                    self.folders.find_copy(attempt)
                    or self.folders.find_copy(replace(attempt, learner=""))
                )
            )
            if rivals := self.rivals(attempt, group):
                names = " / ".join(sorted({attempt.claim.key, *rivals}))
                self.ask(attempt, tr("several people may go by this name: {claims}",
                                     claims=names))  # fmt: skip
            elif rank < max(ranks):
                self.folders.keep(attempt)
                self.line(attempt, issues.SKIPPED, "another one of the project counts")
            elif is_known and attempt.sha != current["sha"]:
                self.line(attempt, issues.EARLIER)
            else:
                found.append(attempt)
        return found

    # The report

    def line(self, attempt: Attempt, state: str, note: str = "", copy: str = "") -> None:
        about = (attempt.shown, attempt.key, attempt.lab_name, attempt.when)
        self.lines.append(issues.Line(*about, state, note, attempt.file, copy))

    def ask(self, attempt: Attempt, reason: str) -> None:
        """Keep the notebook, and ask a person for its owner."""
        copy = self.folders.keep(replace(attempt, learner=""))
        self.report_issue(attempt, issues.WHOSE, reason, str(copy.relative_to(self.root)))

    def report_issue(self, attempt: Attempt, state: str, reason: str, copy: str = "") -> None:
        """Add a line to the table, and an issue that stays open."""
        self.line(attempt, state, reason, copy)
        issue = issues.OpenIssue(
            attempt.shown, bool(attempt.learner), attempt.lab_name, attempt.file, reason,
            when=attempt.when.timestamp() if attempt.when and not attempt.other else None,
            sha=attempt.sha if copy or state == issues.BLANK else "", kept=copy,
            claim=attempt.key, late=attempt.claim.late if attempt.claim else None,
        )  # fmt: skip
        self.new.append(issue)

    def report_ungraded(self, rest: Sequence[Attempt]) -> None:
        """Report files that are not submissions, once for each learner and reason. Files of
        another kind or lab do not matter if their learner has a submission."""
        files: dict[tuple[str, bool, str], list[Attempt]] = defaultdict(list)
        for attempt in rest:
            if attempt.sha:
                reason = tr("a notebook of {name}", name=attempt.lab.name)
                attempt = replace(attempt, reason=reason, other=True, lab=None)
            owner, reason = attempt.key or attempt.shown, attempt.reason
            files[owner, attempt.other, "" if attempt.other else reason].append(attempt)
        labs = {line.lab for line in self.lines if line.state in issues.COUNTS}
        only = next((lab for lab in LABS if {lab.name} == labs), None)
        for (owner, is_other, _), (attempt, *more) in sorted(files.items(), key=lambda i: i[0]):
            note = attempt.reason
            if more:
                note += tr("; and {count} more such files", count=len(more))
            wanted = {self.wanted.name} if self.wanted else labs
            is_submitted = attempt.learner and any(
                issues.submitted(self.root, attempt.learner, lab).is_file() for lab in wanted
            )
            if is_other and (is_submitted or not attempt.claim or (owner, False, "") in files):
                self.line(attempt, issues.SKIPPED, note)
                continue
            attempt = replace(attempt, lab=self.wanted or attempt.lab or only)
            state = issues.UNGRADED if is_other else issues.REFUSED
            self.report_issue(attempt, state, note)
