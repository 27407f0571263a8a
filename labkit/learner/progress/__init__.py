"""How far a learner is: what passed, what was predicted, the end of a lab."""
