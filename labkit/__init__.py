"""The machinery of the course: syllabus, cells, checks, grading, command line.

What a learner needs is in `labkit.learner.notebook`.
"""

import sys

# jsonschema, which nbformat imports, would spend two seconds of every command on a grammar for
# internationalised addresses, which notebooks do not use. It works without this module.
sys.modules.setdefault("rfc3987_syntax", None)  # type: ignore[arg-type]

__version__ = "0.1.0"
