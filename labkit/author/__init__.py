"""The authors' tools: derived files, the editions, the translations."""
