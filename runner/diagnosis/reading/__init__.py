"""Logs of every kind, read into one `Trace`."""

from runner.diagnosis.reading.entry import read, read_all

__all__ = ["read", "read_all"]
