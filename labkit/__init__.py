"""The machinery of the course: syllabus, cells, checks, grading, command line.

What a learner needs is in `labkit.learner.notebook`.
"""

import sys

# jsonschema, which nbformat imports, would build a grammar for internationalised addresses that
# no schema of a notebook asks for: two seconds of every command. It works without them.
sys.modules.setdefault("rfc3987_syntax", None)  # type: ignore[arg-type]

__version__ = "0.1.0"
