"""Grading a whole class: the submissions without a result, and the processes that judge
them."""
