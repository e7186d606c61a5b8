"""Which weights: tokenizer and template, loading, number formats, adapters."""
