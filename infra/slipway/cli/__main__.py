"""Entry of `python -m slipway.cli`."""

from slipway.cli.app import main

main()
