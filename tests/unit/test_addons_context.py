"""Options that all objects of add-ons share."""

from __future__ import annotations

from unittest import mock

import pulumi

from slipway import paths, spec
from slipway.addons import Context


def test_objects_go_with_the_api_servers() -> None:
    """Else a destroy waits for pods to end on nodes that are gone."""
    cluster = spec.load(paths.root() / "stacks/Pulumi.tiny.yaml")
    apiservers = mock.create_autospec(pulumi.CustomResource, instance=True)
    context = Context(cluster, mock.create_autospec(pulumi.ProviderResource, instance=True), [], apiservers, {})
    assert context.then([]).options().deleted_with is apiservers
