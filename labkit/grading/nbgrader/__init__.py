"""The course folder, the gradebook and feedback, through nbgrader."""
