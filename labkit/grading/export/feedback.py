"""Feedback pages in zips that a learning platform returns to its learners. It finds the owner
of a file by the names of its own export, which collect has kept.
"""

from __future__ import annotations

import io
import re
import zipfile
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path

from labkit.course.files import write_whole
from labkit.grading.class_report.class_results import LabResults
from labkit.grading.collect.issues import OpenIssues
from labkit.grading.nbgrader.timestamp import read_manifest
from labkit.grading.platforms import PLATFORMS, names_of, platform_of

SHOWN = 12  # learners in a remark


def feedback_zips(course: Path, results: LabResults) -> tuple[list[Path], list[str]]:
    """Write a zip for each platform in which the lab was handed in; also return remarks on the
    learners who are in none."""
    lab, zips = results.lab.name, defaultdict(dict)
    manifest, unnamed, without_page = read_manifest(course), [], []
    for entry in results.handed + results.not_gradable:
        page = course / "feedback" / entry.learner / lab / f"{lab}.html"
        handed = manifest.get(f"{entry.learner}/{lab}", {})
        if not entry.is_graded:  # a page that is older than its file is not exported
            handed = issue_of(course, entry.learner, lab)
        platform, name = page_name(handed, lab)
        if not page.is_file() or not (handed or entry.is_graded):
            without_page.append(entry.learner)
        elif not name:
            unnamed.append(entry.learner)
        else:
            zips[platform][name] = page.read_bytes()
    written = []
    for platform, pages in sorted(zips.items()):
        buffer = io.BytesIO()
        with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, data in sorted(pages.items()):
                archive.writestr(name, data)
        written.append(course / "export" / f"{lab}_feedback_{platform}.zip")
        write_whole(written[-1], buffer.getvalue())
    names = names_of([platform for platform in PLATFORMS if platform.upload])
    lost = {f"no export of {names} names": unnamed, "there is no page of": without_page}
    return written, [f"{lab}: in no zip, as {why}: {join_first(learners)}"
                     for why, learners in lost.items() if learners]  # fmt: skip


def join_first(learners: Sequence[str]) -> str:
    more = f" and {len(learners) - SHOWN} more" if len(learners) > SHOWN else ""
    return ", ".join(learners[:SHOWN]) + more


def issue_of(course: Path, learner: str, lab: str) -> dict[str, str]:
    """Return the open issue of a file that could not be graded."""
    for issue in OpenIssues(course).entries:
        if issue.known and (issue.learner, issue.lab) == (learner, lab) and issue.claim:
            return {"claim": issue.claim, "source": issue.file}
    return {}


def page_name(entry: Mapping[str, str], lab: str) -> tuple[str, str]:
    """(platform, the page's name in its zip) for an attempt, by its path in the export."""
    platform = platform_of(entry.get("claim", ""))
    if platform and platform.upload:
        for part in entry["source"].split("/"):
            if found := re.fullmatch(platform.upload, part):
                return platform.name.lower(), platform.page.format(found[1], lab=lab)
    return "", ""
