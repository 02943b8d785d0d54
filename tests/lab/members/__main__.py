"""The program with nothing but one etcd: its play, and what takes members out of it."""

import signal

import pulumi

from slipway import release, spec, trust
from slipway.fleet import addresses
from slipway.fleet.lab import build
from slipway.plays import Plays, sources

signal.signal(signal.SIGINT, signal.SIG_DFL)
stack = pulumi.get_stack()
cluster = spec.parse(pulumi.Config("slipway").require_object("cluster"), f"stacks/Pulumi.{stack}.yaml", stack)
pinned = release.load(cluster.release)
trusted = trust.create(cluster)
addresses.everything = lambda declared: addresses.group(declared, "etcd")  # type: ignore[assignment]
fleet = build.build(cluster, trusted.ssh_key.public_key)
plays = Plays(cluster, pinned, fleet, trusted, sources(cluster, pinned, fleet, trusted))
plays.leavers(etcds=[plays.etcd("etcd")], balancers=[])
