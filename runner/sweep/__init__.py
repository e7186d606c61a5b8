"""Many runs: one process per trial, a table at the end. Torch-free; only the trials' own processes import it."""
