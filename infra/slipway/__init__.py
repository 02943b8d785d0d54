"""Slipway: turns machines into training-ready GPU Kubernetes clusters and keeps them there."""
