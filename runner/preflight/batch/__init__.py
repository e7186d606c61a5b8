"""Checks that run one batch: what trains, kernels, arithmetic, number formats, noise."""
