"""Figures and tables that the notebooks show."""
