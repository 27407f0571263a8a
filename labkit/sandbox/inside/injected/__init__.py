"""Modules that are added to the package under test and run there."""
