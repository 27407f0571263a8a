"""One submission: its cells, the sandbox it runs in, the verdict."""
