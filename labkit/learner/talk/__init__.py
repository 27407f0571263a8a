"""The commands `generate` and `chat`, and their options: model, code, sampling."""
