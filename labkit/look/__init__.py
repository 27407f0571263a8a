"""The model alive in a page: a small engine in JavaScript, and six views into it."""
