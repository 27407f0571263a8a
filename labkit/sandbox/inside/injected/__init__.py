"""Modules that are laid into the package under test and run there, beside its own modules."""
