"""How sharp the hidden checks are: every mechanical fault of an answer, and which are seen."""
