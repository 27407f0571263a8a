"""Bringing what learners handed in to where nbgrader looks for it.

The latest attempt counts. Running it again changes nothing; an earlier submission is replaced
by a later one only, and even then it is kept. What cannot be graded, or is nobody's, is kept in
mind until it is settled.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from labkit.core.files import safe_id
from labkit.core.syllabus import LABS, Lab
from labkit.grading.collect.contents import completed
from labkit.grading.collect.identify import Identity
from labkit.grading.collect.places import Attempt, Places
from labkit.grading.collect.roster import Roster, read_roster
from labkit.grading.collect.sources import NOTHING_GRADED, clamped, files_of, once
from labkit.grading.collect.table import (
    AMBIGUOUS,
    EARLIER,
    NEW,
    NEWER,
    REFUSED,
    SKIPPED,
    UNGRADED,
    UNKNOWN,
    Line,
)
from labkit.grading.collect.unsettled import Unsettled, UnsettledFiles
from labkit.grading.nbgrader.course import Course
from labkit.grading.nbgrader.gradebook.connection import CourseError, enrol
from labkit.lang import said, tr

ASK = said("`tinyllm collect --as ID FILE` gives it to somebody")
Group = list[Attempt]


def collect(
    course: Course,
    sources: Sequence[Path],
    lab: Lab | None = None,
    roster_file: Path | None = None,
    replace_newer: bool = False,
    learner: str | None = None,
) -> list[Line]:
    """Collect all that was handed in in `sources`.

    lab        only this one; it is also that of notebooks that do not say
    learner    whose all of it is; else their paths say it
    """
    with Places(course.root) as place:
        run = Run(course, lab, place, roster_of(course, roster_file), replace_newer)
        if learner is not None:
            run.checked(learner)
        attempts: list[Attempt] = []
        for source in sources:
            inside = source.resolve().is_relative_to(place.collected.resolve())
            if inside and learner is None:
                raise CourseError(
                    tr("{source} is where collect keeps its own files", source=source)
                )
            found = files_of(source, lab, place, len(sources) == 1, run.roster.by_key)
            run.roster.participants += found.participants
            attempts += found.attempts
        run.deal_out(attempts if learner is None else run.given_to(learner, attempts))
        place.finish(run.lines)
    return run.lines


def roster_of(course: Course, file: Path | None) -> Roster:
    """The CSV, which is put into nbgrader's students; else those students, if they have more
    than an id (which is all that grading gives to a new one). Moodle's worksheet adds to a
    class that is known."""
    known = course.people()
    closed = any(p.name or p.email or p.lms_user_id for p in known)
    if file is None:
        return Roster(known, closed)
    people, participants = read_roster(file, known)
    if participants and closed:
        before = Roster(known)
        people = [
            one for one in people if not before.find(Identity((one.id, one.email, one.name)))[0]
        ]
    course.gradebook.do(lambda book: enrol(book, people))
    return Roster(
        people if not participants or not closed else known + people, True, participants
    )


class Run:
    """One run of collect: what it found becomes submissions, lines, and what needs a look."""

    def __init__(
        self, course: Course, wanted: Lab | None, place: Places, roster: Roster, newer: bool
    ):
        self.wanted, self.place, self.roster, self.newer = wanted, place, roster, newer
        self.root, self.dues = course.root, course.due_dates()
        self.unsettled = UnsettledFiles(course.root)
        self.lines: list[Line] = []
        self.new: list[Unsettled] = []

    def deal_out(self, attempts: list[Attempt]) -> None:
        """Everything to its place."""
        owned = [clamped(one, self.dues) for one in self._owned(attempts)]
        readable: dict[tuple[str, str], Group] = defaultdict(list)
        for one in owned:
            if one.readable and self.wanted in (None, one.lab):
                readable[one.learner, one.lab.name].append(one)
        delivered = {}
        for key, group in readable.items():
            if state := self._delivered(self._undisputed(group)):
                delivered[key] = state
        for one in once(owned):
            if not one.readable or self.wanted not in (None, one.lab):
                self._not_graded(one, delivered)
            elif self.wanted is None and one.claimed not in (None, one.lab):
                self._wrong_name(one, delivered)
        found = {
            one.sha
            for one in owned
            if one.readable and (one.learner, one.lab.name) in delivered
        }
        come = {key for key, state in delivered.items() if state in (NEW, NEWER)}
        self.unsettled.update(self.new, found, come)

    # From attempts to learners

    def checked(self, learner: str) -> None:
        if safe_id(learner) != learner:
            raise CourseError(tr("{learner!r} cannot be a learner's id", learner=learner))
        if self.roster.closed and learner not in {one.id for one in self.roster.people}:
            raise CourseError(
                tr(
                    "{learner} is not on the roster, so nothing is given to them",
                    learner=learner,
                )
            )

    def given_to(self, learner: str, attempts: list[Attempt]) -> list[Attempt]:
        """All of it is this learner's; it is remembered, should it come again."""
        shas = {one.sha for one in attempts if one.sha}
        for entry in self.unsettled.entries:
            if entry.sha in shas:
                self.unsettled.given[f"{entry.learner}/{entry.sha}"] = learner
        who = Identity((learner,), system="--as", how="--as")
        return [replace(one, who=who, learner=learner) for one in attempts]

    def _owned(self, attempts: list[Attempt]) -> Iterable[Attempt]:
        """The attempts with their learners; what is nobody's is kept and said."""
        users: dict[str, set[str]] = defaultdict(set)  # of people of one name
        for one in attempts:
            users[safe_id(one.who.shown)].add(one.who.user)
        for one in attempts:
            ids, name = self.roster.find(one.who)
            keys = [f"{key}/{one.sha}" for key in (one.who.apart, *ids) if one.sha]
            given = next(filter(None, map(self.unsettled.given.get, keys)), None)
            problem = self._nobodys(one.who, ids)
            if one.learner:
                yield one
            elif given:
                who = replace(one.who, system="--as", how=tr("--as, before"))
                yield replace(one, learner=given, who=who)
            elif problem:
                self._lost(
                    one, problem, AMBIGUOUS if len(ids) > 1 or one.who.doubt else UNKNOWN
                )
            elif ids:
                rank = one.who.names.index(name) if name in one.who.names else 0
                yield replace(one, learner=ids.pop(), rank=rank)
            elif (
                one.clutter
                and not one.who.system
                and one.who.place
                and not self._handed_in(one)
            ):
                continue
            else:
                yield self._by_its_name(one, users)

    def _handed_in(self, one: Attempt) -> bool:
        """Whether a file that is no notebook looks handed in: it names a lab, or lies in
        somebody's folder."""
        return bool(one.claimed) or len(one.parts) - len(one.who.place) > 0

    def _nobodys(self, who: Identity, ids: set[str]) -> str:
        """Why a file cannot be given to anybody; empty if it can."""
        if len(ids) > 1:
            return tr(
                "{shown} may be {names}", shown=who.shown, names=tr(" or ").join(sorted(ids))
            )
        if not who.names:
            return (
                ""
                if ids
                else who.doubt or tr("no name in its path; put it into a folder that has one")
            )
        if not ids and who.doubt:
            return who.doubt
        if not ids and self.roster.closed:
            return tr("not on the roster, so not graded")
        unnamed = who.system == "Gradescope" and who.how == "Gradescope's folder"
        return (
            tr("submission_metadata.yml, which says whose it is, is not there")
            if unnamed
            else ""
        )

    def _by_its_name(self, one: Attempt, users: Mapping[str, set[str]]) -> Attempt:
        """Without a roster a name is an id; namesakes are told apart by their LMS's numbers, or
        what its list says of these."""
        name, user = safe_id(one.who.shown), one.who.user
        others = set(users[name])
        if one.who.system == "Canvas":  # whose numbers stay the same from lab to lab
            others |= self.place.users_of(name)
        if not user or not others - {user}:
            return replace(one, learner=name)
        row = self.roster.participant(one.who)
        note = tr(
            "several people are called {shown}; a roster tells them apart", shown=one.who.shown
        )
        return replace(one, learner=safe_id(f"{name}_{row.id if row else user}"), note=note)

    def _lost(self, one: Attempt, problem: str, state: str) -> None:
        """Nobody's: kept, and said."""
        if not one.readable:
            if not one.clutter or one.who.system:
                self._says(one, REFUSED, one.reason, known=False)
            return
        if self.wanted not in (None, one.lab):
            return
        kept = self.place.keep(replace(one, learner=""))
        self._says(one, state, problem + tr("; ") + tr(ASK), known=bool(one.learner), kept=kept)

    def _undisputed(self, group: Group) -> Group:
        """Without those that may be somebody else's: different notebooks under one name from
        different places, and no number of an LMS says that they are one person's. What bears
        the name outermost stays, if it is one."""
        if len({one.sha for one in group}) < 2:
            return group
        group = self._of_one_number(group)
        keys: dict[Attempt, tuple] = {}
        for one in group:
            if not one.who.user and not one.who.system:
                keys[one] = (one.rank, one.source, one.who.place, one.who.within)
        if any(one.who.system == "--as" for one in group):
            self.lines += [
                one.line(SKIPPED, tr("another one was given with --as")) for one in keys
            ]
            return [one for one in group if one not in keys]
        by_source: dict[Path, set[tuple]] = defaultdict(set)
        stems: dict[tuple, set[str]] = defaultdict(set)
        for one, key in keys.items():
            by_source[one.source].add(key)
            stems[key].add(one.who.stem)
        lost = []
        for one, key in keys.items():
            others = by_source[one.source]
            outermost = [each for each in others if each[0] == min(others)[0]]
            crowded = len(stems[key] - {""}) > 1
            if crowded or (len(others) > 1 and outermost != [key]):
                lost.append(one)
        for one in lost:
            name = one.who.shown
            problem = tr(
                "{name} has different notebooks of {lab} in different places",
                name=name,
                lab=one.lab.name,
            )
            self._lost(one, problem, AMBIGUOUS)
        return [one for one in group if one not in lost]

    def _of_one_number(self, group: Group) -> Group:
        """Without those of several numbers of an LMS in one source, which are different people:
        a person says whose they are."""
        numbers: dict[Path, set[str]] = defaultdict(set)
        for one in group:
            numbers[one.source] |= {one.who.user} - {""}
        given = {one.who.user for one in group if one.who.system == "--as"}
        lost = [one for one in group if len(numbers[one.source]) > 1
                and one.who.user and one.who.user not in given]  # fmt: skip
        for one in lost:
            if given:
                self.lines.append(one.line(SKIPPED, tr("another one was given with --as")))
            else:
                self._lost(one, tr("several people in the LMS go by this name"), AMBIGUOUS)
        return [one for one in group if one not in lost]

    # From learners to files

    def _delivered(self, group: Group) -> str:
        """Put the latest attempt of one learner where nbgrader looks; a line for each attempt.
        What became of it; empty if there is nothing that counts."""
        sure = [one for one in group if one.sure] or group
        notebooks = [one for one in sure if not one.script]
        scripts = sorted((one for one in sure if one.script and one.answers), key=by_order)
        if not notebooks and not scripts:
            for one in group:
                self._says(one, UNGRADED, tr("it holds no answer"))
            return ""
        *earlier, last = sorted(notebooks, key=by_order) or scripts
        for one in group:
            self.place.keep(one)
        counts = self._completed(last, scripts) if notebooks and scripts else last
        if counts is not last:
            self.place.keep(counts)
        self.lines += [one.line(EARLIER) for one in earlier if one.sha != last.sha]
        if notebooks:
            self.lines += [one.line(SKIPPED, tr("a notebook is there")) for one in scripts]
        state = self.place.deliver(counts, self.newer)
        self.lines.append(counts.line(state))
        return state

    def _completed(self, one: Attempt, scripts: Group) -> Attempt:
        """With the answers of the learner's package where the notebook has none."""
        own = dict(one.answers)
        gaps = {key: text for key, text in scripts[-1].answers if key not in own}
        if not gaps:
            return one
        spooled, sha = self.place.spool(completed(one.spooled.read_bytes(), gaps))
        note = tr(
            "{names} from {file}, the notebook has none",
            names=tr(", ").join(gaps),
            file=scripts[-1].parts[-1],
        )
        return replace(one, spooled=spooled, sha=sha, note=note)

    def _not_graded(self, one: Attempt, delivered: Collection[tuple[str, str]]) -> None:
        """A file that is no submission: a word, and something to look at where its learner has
        no other one."""
        lab = self.wanted or one.claimed or one.lab or self._only_lab(delivered)
        if one.readable or one.reason == NOTHING_GRADED:
            lab = self.wanted or one.claimed
            reason = tr("a notebook of {name}", name=one.lab.name)
            if one.reason:
                reason += f"; {one.reason}"
        else:
            reason = one.reason
        has = {each for learner, each in delivered if learner == one.learner}
        enough = lab.name in has if lab else bool(has)
        if one.reason == NOTHING_GRADED and not self.wanted:
            enough = enough or bool(has)
        if enough and (one.clutter or one.readable or one.reason == NOTHING_GRADED):
            if not one.clutter:
                self.lines.append(one.line(SKIPPED, reason))
            return
        state = REFUSED if not one.clutter and not one.readable else UNGRADED
        if enough:
            self.lines.append(one.line(state, reason))
        else:
            self._says(replace(one, lab=lab, note=""), state, reason)

    def _wrong_name(self, one: Attempt, delivered: Collection[tuple[str, str]]) -> None:
        """It was taken for the lab of its cells; the one of its name may be missing."""
        there = self.unsettled.submitted(one.learner, one.claimed.name)
        if not there and (one.learner, one.claimed.name) not in delivered:
            reason = tr("its cells are those of {name}", name=one.lab.name)
            other = replace(one, lab=one.claimed, note="", when=None)  # whenever it comes
            self._says(other, UNGRADED, reason, cells=one.lab.name)

    def _only_lab(self, delivered: Collection[tuple[str, str]]) -> Lab | None:
        names = {lab for _, lab in delivered}
        return next((lab for lab in LABS if {lab.name} == names), None)

    def _says(
        self,
        one: Attempt,
        state: str,
        reason: str,
        known: bool = True,
        kept: Path | None = None,
        cells: str = "",
    ) -> None:
        """A line, and an entry in what needs a look."""
        self.lines.append(one.line(state, reason))
        lab = one.lab.name if one.lab else ""
        when = one.when.timestamp() if one.when else None
        where = str(kept.relative_to(self.root)) if kept else ""
        who, sha = one.learner if known else one.who.apart, one.sha if kept else ""
        self.new.append(Unsettled(who, known, lab, one.file, reason, when, sha, where, cells))


def by_order(one: Attempt) -> tuple:
    return one.order
