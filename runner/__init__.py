"""Fine-tune language models and classifiers from YAML that Hydra composes, and learn why a run is ill."""

__version__ = "0.1.0"
