"""The instructor's side: judge, gradebook, reports. A learner's edition does not have it."""
