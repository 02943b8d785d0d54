"""Slipway's own Pulumi provider, on the raw gRPC stubs that Pulumi's Python SDK ships.

`server` speaks the protocol, `wire` its values, `resource` says what a resource is; every other module is one resource.
"""
