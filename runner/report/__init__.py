"""Rendering: what a run shows in the terminal and in pictures."""
