"""A whole class: which submissions have no result yet, and who judges them."""
