"""Streaming text from a model, and chatting with it."""
