"""Bring what learners handed in to where nbgrader looks for it.

course/submitted/ID/LAB/LAB.ipynb        the attempt that counts, with timestamp.txt
course/collected/learners/ID/LAB/        every attempt there was, this one too
course/collected/unknown/NAME/LAB/       notebooks of which it is open whose they are
course/collected/manifest.json           where each attempt that counts came from
course/collected/needs_a_look.json       what a person has to settle (issues.py)
course/collected/last.csv                what became of each file of the last run

The latest attempt counts, and only a later one replaces it. Nothing is guessed: what no layout
and no roster settles stays open until `--as` says whose it is.
"""

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
from labkit.grading.collect.labs import MODULE, rank_in_project
from labkit.grading.collect.modules import fill_submission, modules_in, note_on_module
from labkit.grading.collect.roster import Roster, normalize_name, roster_of
from labkit.grading.nbgrader import timestamp
from labkit.grading.nbgrader.course import Course
from labkit.grading.nbgrader.gradebook.connection import CourseError
from labkit.grading.platforms import platform_of

SPOOL = ".spool-"  # one course folder is written by one command at a time
LABS_BY_NAME = {lab.name: lab for lab in LABS}


def collect(
    course: Course,
    sources: Sequence[Path],
    lab: Lab | None = None,
    roster_file: Path | None = None,
    replace_newer: bool = False,
    learner: str | None = None,
) -> list[issues.Line]:
    """Collect all that was handed in in `sources`.

    lab        only this one; it is also the lab of notebooks that do not say theirs
    learner    whose all of it is; else their paths say it
    """
    run = Run(course, lab, roster_of(course, roster_file), replace_newer)
    for stale in run.folders.collected.glob(f"{SPOOL}*"):  # of a run that was killed
        rmtree(stale, ignore_errors=True)
    with TemporaryDirectory(prefix=SPOOL, dir=run.folders.collected) as spool:
        attempts: list[Attempt] = []
        for source in sources:
            inside = source.resolve().is_relative_to(run.folders.collected.resolve())
            if inside and learner is None:
                raise CourseError(f"{source} is where collect keeps its own files")
            if learner is not None and MODULE.search(source.name):
                source = fill_submission(course, learner, source, spool)
                run.replace_newer = run.is_completed = True
            attempts += attempts_in(source, lab, Path(spool))
        run.deliver(attempts if learner is None else run.assign(learner, attempts))
    return run.lines


class Run:
    """One run of collect: attempts become submissions, lines of the table, and open issues."""

    def __init__(self, course: Course, wanted: Lab | None, roster: Roster, replace_newer: bool):
        self.root, self.wanted, self.roster = course.root, wanted, roster
        self.replace_newer = replace_newer
        self.is_assigned = False  # a person said whose it is
        self.is_completed = False  # it is what counts, with a module's answers
        self.folders = CollectFolders(self.root)
        self.issues = issues.OpenIssues(self.root)
        self.issues.given |= roster.numbers
        self.lines: list[issues.Line] = []
        self.new: list[issues.OpenIssue] = []
        self.settled: set[str] = set()
        self.delivered: dict[tuple[str, str], str] = {}

    def deliver(self, attempts: list[Attempt]) -> None:
        groups: dict[tuple[str, Lab], list[Attempt]] = defaultdict(list)
        rest: list[Attempt] = []
        for attempt in map(self.with_learner, attempts):
            if not attempt.sha or self.wanted not in (None, attempt.lab):
                rest.append(attempt)
            elif attempt.learner:
                groups[attempt.learner, attempt.lab].append(attempt)
            else:
                self.ask(attempt, self.owner_problem(attempt))
        self.modules = {} if self.is_assigned else modules_in(rest)
        for group in groups.values():
            self.deliver_group(group)
        self.report_ungraded(rest)
        self.folders.write_manifest()
        self.issues.update(self.new, self.settled, self.delivered)

    # Whose

    def assign(self, learner: str, attempts: list[Attempt]) -> list[Attempt]:
        """All of it is this learner's. It is remembered, should it come again; and whose the
        number is that a platform gives to a person."""
        if safe_id(learner) != learner:
            raise CourseError(f"{learner!r} cannot be a learner's id")
        if self.roster.closed and learner not in {person.id for person in self.roster.people}:
            raise CourseError(f"{learner} is not on the roster, so nothing is given to them")
        self.is_assigned = True
        asked = {issue.sha: issue for issue in self.issues.entries if issue.claim}
        assigned = []
        for attempt in attempts:
            before = self.folders.manifest.get(f"{learner}/{attempt.lab_name}", {})
            issue = asked.get(attempt.sha)
            if issue and (claim := claim_called(issue.claim)):
                claim = replace(claim, late=issue.late)
            else:
                claim = attempt.claim
            claim = claim or claim_called(before.get("claim", "")) or Claim(names=(learner,))
            if attempt.claim is None:
                origin = issue.file if issue else before.get("source", "")
                attempt = replace(attempt, origin=origin)
            if self.is_completed and before:
                claim = replace(claim, late=before.get("late"), number=before["order"][0])
            self.issues.given[f"{claim.key}/{attempt.sha}"] = learner
            if claim.user:
                self.issues.given[claim.key] = learner
            assigned.append(replace(attempt, claim=claim, learner=learner))
        return assigned

    def with_learner(self, attempt: Attempt) -> Attempt:
        claim = attempt.claim
        if self.is_assigned or claim is None:
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
        """Why it is open whose a notebook is."""
        if (claim := attempt.claim) is None:
            odd = tr("its path is not like those of the others, or of no known layout")
            return attempt.reason or odd
        if ids := sorted(self.roster.find(claim.key, claim.sure, claim.names)):
            return tr("{shown} may be {names}", shown=attempt.shown, names=tr(" or ").join(ids))
        if claim.platform.table:
            table = tr(claim.platform.table)
            return tr("not on the roster; {platform}'s {table} as --roster may tell",
                      platform=claim.platform.name, table=table)  # fmt: skip
        return tr("not on the roster, so not graded")

    def rivals(self, attempt: Attempt, group: list[Attempt], current: dict) -> set[str]:
        """What says that the learner's work is somebody else's: different numbers of one
        platform are different people, and so may be sources with different notebooks."""
        key, platform = attempt.claim.key, attempt.claim.platform
        keys = {current["claim"]} if current else {other.claim.key for other in group}
        hashes = {other.sha for other in group} if not current else {current["sha"]}
        numbers = {other for other in keys if platform_of(other) == platform}
        if platform.one_number:
            claims = {entry.get("claim", ""): name.rpartition("/")[0]
                      for name, entry in self.folders.manifest.items()}  # fmt: skip
            claims |= {key: next(iter(ids)) for key, ids in self.roster.numbers_of(platform)}
            mine = {other for other, learner in claims.items() if learner == attempt.learner}
            numbers |= {other for other in mine if platform_of(other) == platform}
        is_given = self.issues.given.get(key) == attempt.learner
        if platform.has_users and numbers - {key} and not is_given:
            return numbers | {key}
        return set() if hashes == {attempt.sha} or keys == {key} else keys | {key}

    # One learner's notebooks of one lab

    def deliver_group(self, group: list[Attempt]) -> None:
        """The latest counts, and all are kept; what may be somebody else's is asked about."""
        learner, lab = group[0].learner, group[0].lab
        current = self.folders.current(learner, lab.name)
        new = group if self.is_assigned else self.new_attempts(group, current)
        new = self.ordered(new)
        if not new:
            return
        *earlier, last = sorted(new, key=lambda attempt: (attempt.order, attempt.file))
        for attempt in earlier:
            self.folders.keep(attempt)
            if attempt.sha != last.sha:
                self.line(attempt, issues.EARLIER)
        state = self.folders.put(last, self.replace_newer, self.is_assigned)
        self.folders.keep(last)  # after it counts: until then it is new
        self.settled |= {attempt.sha for attempt in new}
        if state != issues.OLDER:
            self.delivered[learner, lab.name] = last.claim.key
        is_delivered = state != issues.OLDER
        if is_delivered and (why := note_on_module(self.folders, last, self.modules)):
            self.report_issue(last, issues.BLANK, why)
        else:
            self.line(last, state)

    def new_attempts(self, group: list[Attempt], current: dict) -> list[Attempt]:
        """Those that may change what counts, undisputed; of a project, those of the highest
        rank."""
        found, ranks = [], [rank_in_project(attempt.parts) for attempt in group]
        for attempt, rank in zip(group, ranks, strict=True):
            if rank < max(ranks):
                self.folders.keep(attempt)
                self.line(attempt, issues.SKIPPED, "another one of the project counts")
            elif rivals := self.rivals(attempt, group, current):
                names = " / ".join(sorted(rivals))
                why = tr("several people may go by this name: {claims}", claims=names)
                self.ask(attempt, why)
            elif self.is_new(attempt, current):
                found.append(attempt)
            else:
                self.line(attempt, issues.EARLIER)
        return found

    def ordered(self, new: list[Attempt]) -> list[Attempt]:
        """Without any, if no time says which of different notebooks is the latest."""
        is_timed = all(a.claim.platform is None or a.claim.platform.timed for a in new)
        latest = max((attempt.order for attempt in new), default=[])
        doubtful = [a for a in new if not is_timed or a.order == latest]
        if len({attempt.sha for attempt in doubtful}) < 2:
            return new
        for attempt in new:
            if attempt in doubtful:
                self.ask(attempt, tr("{name} has several different notebooks of {lab}",
                                     name=attempt.learner, lab=attempt.lab.name))  # fmt: skip
            else:
                self.folders.keep(attempt)
                self.line(attempt, issues.EARLIER)
        return []

    def is_new(self, attempt: Attempt, current: dict) -> bool:
        """Whether it was not collected before, or counts, or is later than what counts; where
        a person chose what counts, only a notebook that was not there replaces it."""
        path = issues.submitted(self.root, attempt.learner, attempt.lab.name)
        if self.replace_newer or not path.is_file() or attempt.sha == timestamp.sha_of(path):
            return True
        if not any(map(self.folders.find_copy, (attempt, replace(attempt, learner="")))):
            return True
        return not current.get("chosen") and self.folders.is_later(attempt, path, current)

    # What is said of it

    def line(self, attempt: Attempt, state: str, note: str = "", copy: str = "") -> None:
        what = (attempt.shown, attempt.key, attempt.lab_name, attempt.when)
        self.lines.append(issues.Line(*what, state, note, attempt.file, copy))

    def ask(self, attempt: Attempt, reason: str) -> None:
        """It is kept, and a person is asked whose it is."""
        copy = self.folders.keep(replace(attempt, learner=""))
        self.report_issue(attempt, issues.WHOSE, reason, str(copy.relative_to(self.root)))

    def report_issue(self, attempt: Attempt, state: str, reason: str, copy: str = "") -> None:
        """A line of the table, and an issue that stays open."""
        self.line(attempt, state, reason, copy)
        when = attempt.when.timestamp() if attempt.when and not attempt.other else None
        sha = attempt.sha if copy or state == issues.BLANK else ""
        late = attempt.claim.late if attempt.claim else None
        what = (attempt.lab_name, attempt.file, reason, when, sha, copy, attempt.key, late)
        self.new.append(issues.OpenIssue(attempt.shown, bool(attempt.learner), *what))

    def report_ungraded(self, rest: list[Attempt]) -> None:
        """Files that are not submissions, once for each learner and reason. Files of another
        kind or lab do not matter where their learner has a submission."""
        labs = {lab for _, lab in self.delivered}
        files: dict[tuple[str, bool, str], list[Attempt]] = defaultdict(list)
        for attempt in rest:
            mild = attempt.other or bool(attempt.sha)
            if attempt.sha:
                reason = tr("a notebook of {name}", name=attempt.lab.name)
                attempt = replace(attempt, reason=reason)
            who = attempt.key or attempt.shown
            files[who, mild, "" if mild else attempt.reason].append(attempt)
        for (who, mild, _), (attempt, *more) in sorted(files.items(), key=lambda item: item[0]):
            lab = self.wanted or (None if mild else attempt.lab)
            has = any(issues.submitted(self.root, attempt.learner, name).is_file()
                      for name in ({lab.name} if lab else labs) if attempt.learner)  # fmt: skip
            note = attempt.reason
            if more:
                note += tr("; and {count} more such files", count=len(more))
            if mild and (has or attempt.claim is None or (who, False, "") in files):
                self.line(attempt, issues.SKIPPED, note)
                continue
            only = LABS_BY_NAME[min(labs)] if len(labs) == 1 else None
            attempt = replace(attempt, lab=lab or attempt.lab or only)
            self.report_issue(attempt, issues.UNGRADED if mild else issues.REFUSED, note)
