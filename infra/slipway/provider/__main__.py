"""Start the provider: `python -m slipway.provider ENGINE_ADDRESS`."""

from __future__ import annotations

import sys


def main() -> int:
    """Serve until the engine goes away; return the exit code."""
    addresses = [argument for argument in sys.argv[1:] if not argument.startswith("-")]
    try:
        from slipway.provider import server
    except ModuleNotFoundError as missing:
        sys.stderr.write(
            f"pulumi-resource-slipway: {sys.executable} has no package {missing.name}; "
            'expected Slipway\'s environment; run: eval "$(./slipway env)"\n'
        )
        return 2
    return server.serve(addresses[0] if addresses else None)


if __name__ == "__main__":
    sys.exit(main())
