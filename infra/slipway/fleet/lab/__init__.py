"""The lab: real systemd hosts on this machine, made of namespaces by systemd-nspawn.

`base` makes the read-only tree that all hosts of one OS share, `network` a bridge with a way out, `host` the hosts.
Nothing here knows Pulumi; every function may be called from many processes at once.
"""
