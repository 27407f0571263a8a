"""Find the reason for a wrong answer, and compare it with the learner's own code."""
