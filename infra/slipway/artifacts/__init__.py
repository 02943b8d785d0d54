"""Pinned third-party programs and images: downloaded or built, checked, kept in the cache."""

from slipway.artifacts.engines import Engine, arch, ensure, ensure_all, files, find
from slipway.artifacts.errors import EngineError
from slipway.artifacts.progress import Progress

__all__ = ["Engine", "EngineError", "Progress", "arch", "ensure", "ensure_all", "files", "find"]
