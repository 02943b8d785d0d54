"""Pinned third-party programs and images: downloaded or built, checked, kept in the cache."""

from slipway.artifacts.engines import Engine, EngineError, arch, ensure, ensure_all, files, find
from slipway.artifacts.progress import Progress

__all__ = ["Engine", "EngineError", "Progress", "arch", "ensure", "ensure_all", "files", "find"]
