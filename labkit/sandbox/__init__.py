"""Where a learner's code runs: inside/ is what enters the process, the rest is around it."""
