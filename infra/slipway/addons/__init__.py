"""What runs in the cluster, by pulumi-kubernetes. One module an add-on, each `create(context) → resources`."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import pulumi

from slipway.spec import Cluster


@dataclasses.dataclass(frozen=True)
class Context:
    """What an add-on needs: the cluster, the provider that reaches it, what comes first, images by component."""

    cluster: Cluster
    provider: pulumi.ProviderResource
    after: Sequence[pulumi.Resource]
    images: dict[str, str]
    parent: pulumi.Resource | None = None

    def then(self, after: Sequence[pulumi.Resource]) -> Context:
        """The same, once `after` is done too."""
        return dataclasses.replace(self, after=[*self.after, *after])

    def options(self, **more: Any) -> pulumi.ResourceOptions:
        """Resource options that every object of an add-on carries."""
        return pulumi.ResourceOptions(provider=self.provider, depends_on=list(self.after), parent=self.parent, **more)
