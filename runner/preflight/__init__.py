"""Checking before: what is wrong with an experiment, found before the first step."""
