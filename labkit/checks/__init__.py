"""Running a check, comparing, explaining, and what right answers are compared with."""
