"""The command line, `./slipway`: one module a group of commands; `app` puts them together."""
