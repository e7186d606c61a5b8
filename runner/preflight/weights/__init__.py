"""Checks of the weights as they were loaded, and of their files."""
