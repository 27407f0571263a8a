"""From what learners hand in, however it comes, to nbgrader's `submitted/` folder."""
