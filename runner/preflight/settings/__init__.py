"""Checks of the configuration alone, free of torch; and the schedule."""
