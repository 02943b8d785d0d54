"""What can go wrong with engines and images."""


class EngineError(RuntimeError):
    """An engine or image that cannot be had; one line."""
