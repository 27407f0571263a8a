"""Models: load, save, tokenize, generate, chat."""
