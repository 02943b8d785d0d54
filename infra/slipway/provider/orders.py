"""What the hosts of a play are to become: the digests of all of them at once, orders for those that are run."""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass, replace
from functools import cached_property

from slipway.node import bundle
from slipway.play.broker import Order, declared
from slipway.play.runner import Result
from slipway.provider import progress
from slipway.provider.play_inputs import PlayHost, PlayInputs


@dataclass(frozen=True)
class Orders:
    """The orders of a play, made where they are needed: for most hosts of a large play they never are.

    Args:
        inputs: the play.
        forced: hosts that are gone through even at their digest.
    """

    inputs: PlayInputs
    forced: Set[str]

    @cached_property
    def digests(self) -> Mapping[str, str]:
        """The wanted digest of each host."""
        return self.inputs.digests()

    @cached_property
    def bundles(self) -> bundle.Bundles:
        """What hosts need to converge themselves. Blocks; may raise `bundle.BundleError`."""
        return bundle.ensure()

    @cached_property
    def _hosts(self) -> Mapping[str, PlayHost]:
        return {host.name: host for host in self.inputs.hosts}

    def of(self, hosts: Set[str]) -> dict[str, Order]:
        """Return the orders of some hosts. Blocks.

        Raises:
            bundle.BundleError: the bundles cannot be made.
            BrokerError: a certificate is not declared as it must be.
        """
        return {name: self._order(name) for name in self._hosts if name in hosts}

    def untouched(self, seen: Mapping[str, Result]) -> dict[str, Result]:
        """Return, of hosts that were read, the results of those on which nothing is to be done."""
        return {
            name: replace(result, untouched=True)
            for name, result in seen.items()
            if result.ok and name not in self.forced and result.digest == self.digests[name]
        }

    def _order(self, name: str) -> Order:
        inputs, host = self.inputs, self._hosts[name]
        variables = inputs.variables(host)
        told = {
            "playbook": inputs.playbook,
            "groups": [group for group in (host.group, host.pool) if group],
            "release": inputs.release,
            "release_digest": inputs.release_digest,
            "digest": self.digests[name],
            "vars": variables,
            "secrets": inputs.secrets,
            "bundles": self.bundles.as_dict(),
            "force": name in self.forced,
            "by": progress.by(),
            "timeout_seconds": inputs.timeout_seconds,
        }
        return Order(told, declared(variables))
