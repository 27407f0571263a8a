"""The machinery of the course: syllabus, cells, checks, grading, command line.

A learner needs three names, all in `labkit.learner.notebook`: start, check, hint.
"""

__version__ = "0.1.0"
