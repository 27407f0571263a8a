"""What the notebooks draw."""
