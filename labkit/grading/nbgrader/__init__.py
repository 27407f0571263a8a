"""Where the course meets nbgrader: course folder, gradebook, feedback."""
