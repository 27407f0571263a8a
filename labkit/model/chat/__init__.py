"""A model in conversation."""
