"""nbgrader for TinyLLM: run `nbgrader ...` or JupyterLab's formgrader from this folder.

Autograding is handed to the course's own judge: learner code never runs in nbgrader's
process, and the scores are those of `tinyllm grade`.
"""

import os
import sys
from pathlib import Path

from labkit.grading.private_api import show_names_as_text

here = Path(__file__).resolve().parent
scripts = str(Path(sys.executable).parent)  # nbgrader starts `alembic` by its bare name
if scripts not in os.environ["PATH"].split(os.pathsep):
    os.environ["PATH"] = scripts + os.pathsep + os.environ["PATH"]
folder = here if (here / "source").exists() else here / "course"
c = get_config()  # noqa: F821

c.CourseDirectory.course_id = "tinyllm"
c.CourseDirectory.root = os.environ.get("TINYLLM_COURSE", str(folder))
# The gradebook is gradebook.db in that folder; or name a server, here or in the environment:
# c.CourseDirectory.db_url = "postgresql+psycopg2://name:password@localhost/gradebook"
if os.environ.get("TINYLLM_DB"):
    c.CourseDirectory.db_url = os.environ["TINYLLM_DB"]

# Our stubs name their exercise, so they stand in for nbgrader's ClearSolutions.
c.GenerateAssignment.exporter_class = "labkit.grading.nbgrader.hooks.ReleaseExporter"
c.GenerateAssignment.preprocessors = [
    "nbgrader.preprocessors.LockCells",
    "labkit.grading.nbgrader.hooks.InsertStubs",
    "nbgrader.preprocessors.ClearOutput",
    "nbgrader.preprocessors.CheckCellMetadata",
    "nbgrader.preprocessors.ComputeChecksums",
    "nbgrader.preprocessors.SaveCells",
    "nbgrader.preprocessors.CheckCellMetadata",
]

# Submissions are graded as `tinyllm grade` grades them.
c.Autograde.exporter_class = "labkit.grading.nbgrader.hooks.JudgeExporter"

# What comes off for lateness: what course.toml says, else nbgrader's own plugin as it is set up
# here; or name a plugin of your own.
c.AssignLatePenalties.plugin_class = "labkit.grading.nbgrader.plugins.CoursePenalty"

# Feedback goes back through the exchange to those who handed in through it.
c.ExchangeFactory.release_feedback = "labkit.grading.nbgrader.plugins.ReleaseFeedback"

# Feedback is a page of the course's own, without scripts; formgrader shows what learners have
# written without theirs, and names as text.
c.GenerateFeedback.exporter_class = "labkit.grading.nbgrader.hooks.FeedbackPage"
c.HTMLExporter.preprocessors = ["labkit.grading.nbgrader.feedback.SanitizeAnswers"]
show_names_as_text()
