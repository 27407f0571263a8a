"""Brings learners' files from any source into nbgrader's `submitted/` folder."""
