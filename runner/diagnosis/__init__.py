"""From a log or a run folder to a verdict: reads facts, trains nothing, imports no torch."""
