"""The machinery of the course: syllabus, cells, checks, grading, command line.

What a learner needs is in `labkit.learner.notebook`.
"""

__version__ = "0.1.0"
