"""Checks of tokenizer, rows and labels."""
