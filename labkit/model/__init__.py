"""Models on disk and in conversation: load, save, tokenize, generate, chat."""
