"""The schema of a run, and the front door that composes and checks it. Imports neither torch nor transformers."""
