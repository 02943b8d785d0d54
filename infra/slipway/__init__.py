"""Slipway: turns machines into training-ready GPU Kubernetes clusters and keeps them there."""

__version__ = "0.1.0"
