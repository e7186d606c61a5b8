"""Building and instrumenting TRL's `SFTTrainer` and HF's `Trainer`."""
