"""What runs in the cluster, by pulumi-kubernetes. One module an add-on, each `create(context) → resources`."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import pulumi

from slipway.spec import Cluster


@dataclasses.dataclass(frozen=True)
class Context:
    """What an add-on needs: the cluster, the provider that reaches it, what comes first, images by component.

    `lives_in` is what the objects end with: when the API servers go, nothing has to be deleted from them first. To wait
    for that would be to wait for ever where a node is gone, since its pods never end.
    """

    cluster: Cluster
    provider: pulumi.ProviderResource
    after: Sequence[pulumi.Resource]
    lives_in: pulumi.Resource
    images: dict[str, str]
    parent: pulumi.Resource | None = None

    def then(self, after: Sequence[pulumi.Resource]) -> Context:
        """The same, once `after` is done too."""
        return dataclasses.replace(self, after=[*self.after, *after])

    def options(self, **more: Any) -> pulumi.ResourceOptions:
        """Resource options that every object of an add-on carries."""
        return pulumi.ResourceOptions(
            provider=self.provider,
            depends_on=list(self.after),
            parent=self.parent,
            deleted_with=self.lives_in,
            **more,
        )
