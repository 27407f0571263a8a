"""Bring what learners handed in to where nbgrader looks for it.

course/submitted/ID/LAB/LAB.ipynb       the attempt that counts, with timestamp.txt
course/collected/ID/LAB/*.ipynb         every attempt there was, this one too
course/collected/unknown/NAME/LAB/      notebooks of which it is open whose they are
course/collected/manifest.json          where each attempt that counts came from
course/collected/needs_a_look.json      what a person has to settle (issues.py)
course/collected/last.csv               what became of each file of the last run

The latest attempt counts, and only a later one replaces it. Nothing is guessed: what no layout
and no roster settles stays open until `--as` says whose it is. Different notebooks for one
learner from different sources are never delivered.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from labkit.course.files import safe_id
from labkit.course.lang import said, tr
from labkit.course.syllabus import LABS, Lab
from labkit.grading.collect import issues
from labkit.grading.collect.attempts import Attempt, attempts_in
from labkit.grading.collect.folders import CollectFolders, is_later, order_of
from labkit.grading.collect.layouts import MODULE, Claim, claim_called, rank
from labkit.grading.collect.modules import fill_submission, modules_in, note_on_module
from labkit.grading.collect.roster import Roster, roster_of
from labkit.grading.nbgrader.course import Course
from labkit.grading.nbgrader.gradebook.connection import CourseError
from labkit.grading.nbgrader.timestamp import sha_of
from labkit.grading.platforms import platform_of

LABS_BY_NAME = {lab.name: lab for lab in LABS}
LACKS = said("{names} answered in an earlier attempt and not in this one, which counts; ")
CHOOSE = said("`tinyllm collect --replace --as {learner} FILE` says which of {folder} does")
ASK = said("`tinyllm collect --as ID FILE` gives it to somebody")


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
    collected = run.folders.collected
    with TemporaryDirectory(prefix=".spool-", dir=collected) as spool:
        attempts: list[Attempt] = []
        for source in sources:
            inside = source.resolve().is_relative_to(collected.resolve())
            if inside and learner is None:
                raise CourseError(f"{source} is where collect keeps its own files")
            if learner is not None and MODULE.search(source.name):
                source = fill_submission(course, learner, source, spool)
                run.replace_newer = True
            attempts += attempts_in(source, lab, Path(spool))
        if learner is not None:
            attempts = run.assign(learner, attempts)
        run.deliver(attempts)
    return run.lines


class Run:
    """One run of collect: attempts become submissions, lines of the table, and open issues."""

    def __init__(self, course: Course, wanted: Lab | None, roster: Roster, replace_newer: bool):
        self.root, self.wanted, self.roster = course.root, wanted, roster
        self.replace_newer = replace_newer
        self.is_assigned = False  # a person said whose it is
        self.folders = CollectFolders(course.root)
        self.issues = issues.OpenIssues(course.root)
        self.issues.given |= roster.numbers
        self.lines: list[issues.Line] = []
        self.new: list[issues.OpenIssue] = []
        self.settled: set[str] = set()
        self.delivered: dict[tuple[str, str], str] = {}

    def deliver(self, attempts: list[Attempt]) -> None:
        groups: dict[tuple[str, Lab], list[Attempt]] = defaultdict(list)
        rest: list[Attempt] = []
        for attempt in map(self.with_learner, attempts):
            wanted = attempt.sha and self.wanted in (None, attempt.lab)
            if wanted and attempt.learner:
                groups[attempt.learner, attempt.lab].append(attempt)
            elif wanted:
                self.ask(attempt, self.owner_problem(attempt))
            else:
                rest.append(attempt)
        self.modules = {} if self.is_assigned else modules_in(rest)
        for group in groups.values():
            self.deliver_group(group)
        self.report_ungraded(rest)
        self.folders.write_manifest()
        self.issues.update(self.new, self.settled, self.delivered)

    # Whose

    def assign(self, learner: str, attempts: list[Attempt]) -> list[Attempt]:
        """All of it is this learner's. It is remembered, should it come again; and whose the
        number is that an LMS gives to a person."""
        if safe_id(learner) != learner:
            raise CourseError(f"{learner!r} cannot be a learner's id")
        if self.roster.closed and learner not in {person.id for person in self.roster.people}:
            raise CourseError(f"{learner} is not on the roster, so nothing is given to them")
        self.is_assigned = True
        asked = {issue.sha: issue.claim for issue in self.issues.entries if issue.claim}
        assigned = []
        for attempt in attempts:
            before = self.folders.manifest.get(f"{learner}/{attempt.lab_name}", {})
            claim = claim_called(asked.get(attempt.sha, "")) or attempt.claim
            claim = claim or claim_called(before.get("claim", "")) or Claim((learner,))
            self.issues.given[f"{claim.key}/{attempt.sha}"] = learner
            if claim.user:
                self.issues.given[claim.key] = learner
            assigned.append(replace(attempt, claim=claim, learner=learner))
        return assigned

    def with_learner(self, attempt: Attempt) -> Attempt:
        if self.is_assigned or attempt.claim is None:
            return attempt
        key = attempt.claim.key
        given = self.issues.given.get(f"{key}/{attempt.sha}") or self.issues.given.get(key)
        ids = {given} if given else self.roster.find(attempt.claim.names, attempt.claim.key)
        if len(ids) == 1:
            return replace(attempt, learner=next(iter(ids)))
        if ids or self.roster.closed or not any(attempt.claim.names):
            return attempt
        return replace(attempt, learner=safe_id(attempt.claim.shown))

    def owner_problem(self, attempt: Attempt) -> str:
        """Why it is open whose a notebook is."""
        if attempt.claim is None:
            odd = tr("its path is not like those of the others, or of no known layout")
            return attempt.note or odd
        ids = sorted(self.roster.find(attempt.claim.names, attempt.claim.key))
        if ids:
            return tr("{shown} may be {names}", shown=attempt.shown, names=tr(" or ").join(ids))
        platform = attempt.claim.platform
        if platform.table:
            table = tr(platform.table)
            return tr("not on the roster; {platform}'s {table} as --roster may tell",
                      platform=platform.name, table=table)  # fmt: skip
        return tr("not on the roster, so not graded")

    def ask(self, attempt: Attempt, reason: str) -> None:
        """It is kept, and a person is asked whose it is."""
        copy = self.folders.keep(replace(attempt, learner=""))
        reason += tr("; ") + tr(ASK)
        self.report_issue(attempt, issues.WHOSE, reason, str(copy.relative_to(self.root)))

    def report_issue(self, attempt: Attempt, state: str, reason: str, copy: str = "") -> None:
        """A line of the table, and an issue that stays open."""
        self.line(attempt, state, reason)
        when = attempt.when.timestamp() if attempt.when and not attempt.other else None
        learner = attempt.learner or attempt.shown
        sha = attempt.sha if copy or state in (issues.FEWER, issues.BLANK) else ""
        what = (attempt.lab_name, attempt.file, reason, when, sha, copy, attempt.claim_key)
        self.new.append(issues.OpenIssue(learner, bool(attempt.learner), *what))

    def line(self, attempt: Attempt, state: str, note: str = "") -> None:
        what = (attempt.shown, attempt.claim_key, attempt.lab_name, attempt.when)
        self.lines.append(issues.Line(*what, state, note, attempt.file))

    # One learner's notebooks of one lab

    def deliver_group(self, group: list[Attempt]) -> None:
        """The latest counts, and all are kept; what may be somebody else's is asked about."""
        learner, lab = group[0].learner, group[0].lab
        current = self.folders.current(learner, lab.name)
        new = self.undisputed(self.new_attempts(group, current), current)
        if not new:
            return
        *earlier, last = sorted(new, key=lambda attempt: (attempt.order, attempt.file))
        for attempt in earlier:
            self.folders.keep(attempt)
            if attempt.sha != last.sha:
                self.line(attempt, issues.EARLIER)
        state, begun = self.folders.put(last, self.replace_newer, self.is_assigned)
        self.folders.keep(last)  # after it counts: until then it is new
        if self.is_assigned:
            self.settle(last)
        self.settled |= {attempt.sha for attempt in new}
        begun = begun.union(*(attempt.begun for attempt in earlier)) - last.begun
        if state != issues.OLDER:
            self.delivered[learner, lab.name] = last.claim.key
        if begun and state != issues.OLDER and not self.is_assigned:
            why = tr(LACKS, names=tr(", ").join(sorted(begun)))
            why += tr(CHOOSE, learner=learner, folder=f"collected/{learner}/{lab.name}")
            self.report_issue(last, issues.FEWER, why)
        elif state != issues.OLDER and (why := note_on_module(self.root, last, self.modules)):
            self.report_issue(last, issues.BLANK, why)
        else:
            self.line(last, state)

    def settle(self, attempt: Attempt) -> None:
        """Keep with the learner what else was open of the same person."""
        for issue in self.issues.entries:
            same = (issue.claim, issue.lab) == (attempt.claim.key, attempt.lab_name)
            if issue.kept and same and (self.root / issue.kept).is_file():
                content = self.root / issue.kept
                self.folders.keep(replace(attempt, sha=issue.sha, content=content))

    def new_attempts(self, group: list[Attempt], current: dict) -> list[Attempt]:
        """Those that may change what counts; of a project, those of the highest rank."""
        most, new = max(rank(attempt.parts) for attempt in group), []
        for attempt in group:
            if rank(attempt.parts) < most and not self.is_assigned:
                self.folders.keep(attempt)
                self.line(attempt, issues.SKIPPED, "another one of the project counts")
            elif self.is_new(attempt, current):
                new.append(attempt)
            else:
                self.line(attempt, issues.EARLIER)
        return new

    def is_new(self, attempt: Attempt, current: dict) -> bool:
        """Whether it was not collected before, or counts, or is later than what counts; where
        a person chose what counts, only a notebook that was not there replaces it."""
        path = issues.submitted(self.root, attempt.learner, attempt.lab.name)
        if self.is_assigned or self.replace_newer or not path.is_file():
            return True
        if self.folders.find_copy(attempt) is None or attempt.sha == sha_of(path):
            return True
        return not current.get("chosen") and is_later(attempt, order_of(path, current))

    def undisputed(self, new: list[Attempt], current: dict) -> list[Attempt]:
        """Without those that may be somebody else's, and those of which no time says which is
        the latest."""
        if self.is_assigned or not new:
            return new
        keys = {current["claim"]} if current else {attempt.claim.key for attempt in new}
        hashes = {attempt.sha for attempt in new} | {current.get("sha", new[0].sha)}
        claims = [entry.get("claim", "") for key, entry in self.folders.manifest.items()
                  if key.rpartition("/")[0] == new[0].learner]  # fmt: skip
        good = []
        for attempt in new:
            key, platform = attempt.claim.key, attempt.claim.platform
            others = {claim for claim in claims if platform_of(claim) == platform} - {key}
            others = others if platform.one_number else set()
            is_one = len(hashes) == 1 or keys == {key} or attempt.sha == current.get("sha")
            if is_one and not others:
                good.append(attempt)
            else:
                names = " / ".join(sorted({*keys, *others, key}))
                why = tr("several people may go by this name: {claims}", claims=names)
                self.ask(attempt, why)
        timed = all(attempt.claim.platform.timed for attempt in good)
        latest = max((attempt.order for attempt in good), default=[])
        rivals = [attempt for attempt in good if not timed or attempt.order == latest]
        if len({attempt.sha for attempt in rivals}) < 2:
            return good
        for attempt in good:
            if attempt in rivals:
                name, lab = attempt.learner, attempt.lab.name
                why = tr("{name} has several different notebooks of {lab}", name=name, lab=lab)
                self.ask(attempt, why)
            else:
                self.folders.keep(attempt)
                self.line(attempt, issues.EARLIER)
        return []

    def report_ungraded(self, rest: list[Attempt]) -> None:
        """Files that are no submission, once for each reason. Files of a different kind or lab
        do not matter where their learner has a submission."""
        labs = {lab for _, lab in self.delivered}
        files: dict[tuple, list[Attempt]] = defaultdict(list)
        for attempt in rest:
            mild = attempt.other or bool(attempt.sha)
            if attempt.sha:
                reason = tr("a notebook of {name}", name=attempt.lab.name)
                attempt = replace(attempt, reason=reason)
            who = attempt.claim_key or attempt.shown
            files[who, mild, "" if mild else attempt.reason].append(attempt)
        for (who, mild, _), (attempt, *more) in sorted(files.items(), key=lambda item: item[0]):
            lab = self.wanted or (None if mild else attempt.lab)
            names = {lab.name} if lab else labs
            has = any(issues.submitted(self.root, attempt.learner, name).is_file()
                      for name in names if attempt.learner)  # fmt: skip
            note = attempt.reason
            if more:
                note += tr("; and {count} more such files", count=len(more))
            if mild and (has or attempt.claim is None or (who, False, "") in files):
                self.line(attempt, issues.SKIPPED, note)
                continue
            only = LABS_BY_NAME[next(iter(labs))] if len(labs) == 1 else None
            attempt = replace(attempt, lab=lab or attempt.lab or only)
            self.report_issue(attempt, issues.UNGRADED if mild else issues.REFUSED, note)
