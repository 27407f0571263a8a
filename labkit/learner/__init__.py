"""The functions of a notebook and the commands of a learner's terminal."""
