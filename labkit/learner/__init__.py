"""What a notebook and a learner's terminal use."""
