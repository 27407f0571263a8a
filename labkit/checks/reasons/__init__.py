"""How a reason is found for a wrong answer, and tried on the learner's own code."""
