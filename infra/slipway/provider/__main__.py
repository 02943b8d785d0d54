"""Start the provider: `python -m slipway.provider ENGINE_ADDRESS`."""

from __future__ import annotations

import sys


def main() -> int:
    """Serve until the engine goes away; return the exit code."""
    addresses = [argument for argument in sys.argv[1:] if not argument.startswith("-")]
    try:
        from slipway.provider import server  # noqa: PLC0415  (so that a missing package is one line)
    except ModuleNotFoundError as missing:
        print(
            f"pulumi-resource-slipway: {sys.executable} has no package {missing.name}; "
            'expected Slipway\'s environment; run: eval "$(./slipway env)"',
            file=sys.stderr,
        )
        return 2
    return server.serve(addresses[0] if addresses else None)


if __name__ == "__main__":
    sys.exit(main())
