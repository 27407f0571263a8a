"""Run checks, compare outcomes, and explain differences."""
