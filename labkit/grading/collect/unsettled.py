"""What was handed in and cannot be graded, or is nobody's: over all collects, until it is
settled.

An entry about a learner and a lab is settled as soon as a notebook of that lab is there that
came later, or at all; one about a nameless file when it is given to somebody with
`tinyllm collect --as`, or found its owner.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

from jinja2 import Environment, PackageLoader

from labkit.core.files import write_whole
from labkit.core.report import clean
from labkit.core.syllabus import LABS
from labkit.grading.collect.reader import handed_in
from labkit.lang import language, tr

FILE = Path("collected", "needs_a_look.json")


@dataclass(frozen=True)
class Unsettled:
    """One file that needs a look.

    learner    an id, or what is known of a name: then `known` is False
    lab        empty if nobody knows
    when       seconds since 1970
    sha        of a notebook that is nobody's; `kept`: where it lies, in the course folder
    cells      the lab for which it was taken, where its name says `lab`
    """

    learner: str
    known: bool
    lab: str
    file: str
    reason: str
    when: float | None = None
    sha: str = ""
    kept: str = ""
    cells: str = ""

    @property
    def key(self) -> tuple[str, str, str]:
        return self.learner, self.lab, self.file

    @property
    def name(self) -> str:
        return self.file.rpartition("/")[2]

    @property
    def text(self) -> str:
        return tr(
            "handed in {name}, which cannot be graded: {reason}",
            name=self.name,
            reason=tr(self.reason),
        )


class UnsettledFiles:
    """The list of a course folder, read and written whole.

    given    {name/content: learner}: to whom a person gave a file
    """

    def __init__(self, root: Path):
        self.root = root
        try:
            content = json.loads((root / FILE).read_text("utf-8"))
            self.entries = [Unsettled(**each) for each in content["files"]]
            self.given: dict[str, str] = content["given"]
        except (OSError, ValueError, KeyError, TypeError):
            self.entries, self.given = [], {}

    def open(self) -> list[Unsettled]:
        """What a person has still to look at, the nameless last."""
        found = [one for one in self.entries if not self._settled(one)]
        return sorted(found, key=lambda one: (not one.known, one.learner.casefold(), one.lab))

    def why(self, learner: str, lab: str) -> str:
        """Why somebody who handed something in has no submission; empty if nothing came."""
        if self.submitted(learner, lab):
            return ""
        found = [
            one
            for one in self.entries
            if one.known and (one.learner, one.lab) == (learner, lab)
        ]
        return max(found, key=lambda one: one.when or 0.0).text if found else ""

    def of_lab(self, lab: str) -> dict[str, str]:
        """{learner: why}, of those without a submission of this lab."""
        learners = {one.learner for one in self.entries if one.known and one.lab == lab}
        return {who: why for who in sorted(learners) if (why := self.why(who, lab))}

    def submitted(self, learner: str, lab: str) -> Path | None:
        path = self.root / "submitted" / learner / lab / f"{lab}.ipynb"
        return path if lab and path.is_file() else None

    def _settled(self, one: Unsettled) -> bool:
        path = self.submitted(one.learner, one.lab) if one.known else None
        return bool(path and (one.when is None or one.when <= handed_in(path).timestamp()))

    def update(
        self, new: Iterable[Unsettled], found: set[str], come: set[tuple[str, str]]
    ) -> None:
        """Add what a run could not settle, and drop what is settled.

        found    contents that have their owner now
        come     (learner, lab) of notebooks that came
        """
        before = [one for one in self.entries
                  if not {(one.learner, one.lab), (one.learner, one.cells)} & come]  # fmt: skip
        entries = {one.key: one for one in [*before, *new]}
        self.entries = [one for one in entries.values()
                        if one.sha not in found and not self._settled(one)]  # fmt: skip
        content = {"files": [asdict(one) for one in self.entries], "given": self.given}
        write_whole(self.root / FILE, json.dumps(content, indent=1, ensure_ascii=False))
        self.write_pages()

    def write_pages(self) -> None:
        """A page for each learner of whom nothing can be graded, where feedback will be."""
        loader = PackageLoader("labkit.grading", "templates")
        environment = Environment(loader=loader, autoescape=True)
        environment.globals |= {"tr": tr, "language": language}
        template = environment.get_template("ungraded.html")
        for lab in LABS:
            for learner in self.of_lab(lab.name):
                those = [
                    one for one in self.entries if (one.learner, one.lab) == (learner, lab.name)
                ]
                page = template.render(lab=lab, who=learner, files=those)
                path = self.root / "feedback" / learner / lab.name / f"{lab.name}.html"
                write_whole(path, "\n".join(map(clean, page.split("\n"))))
