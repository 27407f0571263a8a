"""A model that writes while one reads, and that one can chat with."""
