"""nbgrader's gradebook: the connection, and the rows of submissions."""
