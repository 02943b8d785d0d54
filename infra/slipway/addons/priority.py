"""Priority classes: training before batch, balloons below everything."""

from __future__ import annotations

import pulumi
import pulumi_kubernetes as k8s

from slipway.addons import Context

# name → (value, preemption policy, what it is for)
CLASSES: dict[str, tuple[int, str, str]] = {
    "slipway-training": (
        100_000,
        "PreemptLowerPriority",
        "Training jobs: may take the place of batch work and balloons.",
    ),
    "slipway-batch": (
        1_000,
        "Never",
        "Batch work: waits for room, takes nobody's place but a balloon's by the scheduler.",
    ),
    # The cluster autoscaler ignores pods below -10 (its --expendable-pods-priority-cutoff).
    "slipway-balloon": (-10, "Never", "Placeholders that keep machines warm and give way at once."),
}


def create(context: Context) -> list[pulumi.Resource]:
    """One PriorityClass each."""
    return [
        k8s.scheduling.v1.PriorityClass(
            name,
            metadata={"name": name},
            value=value,
            preemption_policy=policy,
            description=description,
            opts=context.options(),
        )
        for name, (value, policy, description) in CLASSES.items()
    ]
