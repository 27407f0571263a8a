"""A learner's progress: predictions, experiments, model answers, the end of a lab."""
