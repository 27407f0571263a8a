"""For those who write the course: what is derived, the editions, the known mistakes."""
