"""Grades, feedback and answers on their way to other programs."""
