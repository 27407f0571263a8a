"""The process in which a learner's code runs: inside/ enters it, the rest is around it."""
