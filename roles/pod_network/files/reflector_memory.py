"""Writes down the routes that a route reflector's kernel has, as a static protocol for BIRD's next start.

A reflector that starts with nothing tells its first clients that there is nothing, and they drop routes until the other
clients have come. With what it knew before, they miss routes for milliseconds. The preference is the lowest, so a route
that is told anew always wins; the unit disables the protocol when the clients have had time to come back.

usage: reflector_memory.py FILE. A kernel without such routes (after a boot) leaves the file as it is.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any


def static_protocol(routes: list[dict[str, Any]]) -> str:
    """BIRD's configuration for routes as `ip -json route` lists them; those without a gateway are left out."""
    lines = [f"  route {route['dst']} via {route['gateway']};\n" for route in routes if "gateway" in route]
    return "protocol static slipway_memory {\n  ipv4 { preference 1; };\n" + "".join(sorted(lines)) + "}\n"


def main() -> None:
    shown = subprocess.run(
        ["ip", "-json", "-4", "route", "show", "proto", "bird"], capture_output=True, text=True, check=True
    ).stdout
    routes = json.loads(shown or "[]")
    target = Path(sys.argv[1])
    if target.exists() and not routes:
        return
    handle, temporary = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
    with os.fdopen(handle, "w") as file:
        file.write(static_protocol(routes))
        os.fchmod(file.fileno(), 0o644)
    Path(temporary).replace(target)


if __name__ == "__main__":
    main()
