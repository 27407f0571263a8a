"""nbgrader's own plugins with the rules of course.toml; nbgrader_config.py has their names."""

from __future__ import annotations

import glob
from math import ceil
from pathlib import Path

from nbgrader.exchange.default import ExchangeReleaseFeedback
from nbgrader.plugins import LateSubmissionPlugin

from labkit.course.report import clean
from labkit.grading.course_rules import read_rules
from labkit.grading.nbgrader.exchange_files import EXCHANGE_FILES
from labkit.grading.nbgrader.published import Published

DAY = 24 * 60 * 60


class CoursePenalty(LateSubmissionPlugin):
    """Takes off `late.percent_a_day` of the points per day begun; else nbgrader's penalty."""

    def late_submission_penalty(
        self, student_id: str, score: float, total_seconds_late: float
    ) -> float | None:
        percent = read_rules(Path(self.config.CourseDirectory.root)).percent_a_day
        if percent is None:
            return super().late_submission_penalty(student_id, score, total_seconds_late)
        return score * min(1.0, percent / 100 * ceil(total_seconds_late / DAY))


class ReleaseFeedback(ExchangeReleaseFeedback):
    """Releases feedback to learners who handed in through nbgrader's exchange; nbgrader's own
    class would stop at the first who did not."""

    def copy_files(self) -> None:
        left_out, given = [], []
        for folder in sorted(map(Path, glob.glob(self.src_path))):
            if all((folder / name).is_file() for name in EXCHANGE_FILES):
                self.src_path = glob.escape(str(folder))
                super().copy_files()
                given.append(folder.parent.name)
            elif any(folder.glob("*.html")):
                left_out.append(clean(folder.parent.name))
        course = Path(self.coursedir.root)
        Published(course, self.coursedir.assignment_id).give_out(given)
        if left_out:
            self.log.warning(
                "not released: %s. What they handed in did not come through nbgrader's "
                "exchange; their pages are in feedback/, and `tinyllm export feedback` "
                "packs them",
                ", ".join(left_out),
            )
