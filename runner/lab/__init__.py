"""Experiments on runs: faults to try them with."""
