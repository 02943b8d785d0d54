"""Priority and fairness of the API: events have seats of their own.

Without this a lost events etcd takes more than events away: each write of an event waits 34 s for it, in the seats that
kubelets share for all else they send, and soon their other requests are turned away (429). Seen with 500 writers.
"""

from __future__ import annotations

from typing import Any

import pulumi
import pulumi_kubernetes as k8s

from slipway.addons import Context

NAME = "slipway-events"

# Events may fill their own seats, and borrow none; what they leave unused others may borrow.
LEVEL: dict[str, Any] = {
    "type": "Limited",
    "limited": {
        "nominal_concurrency_shares": 10,
        "lendable_percent": 50,
        "borrowing_limit_percent": 0,
        "limit_response": {"type": "Queue", "queuing": {"queues": 16, "hand_size": 4, "queue_length_limit": 25}},
    },
}

# Before every schema that Kubernetes makes by itself, but those that are exempt.
SCHEMA: dict[str, Any] = {
    "priority_level_configuration": {"name": NAME},
    "matching_precedence": 90,
    "distinguisher_method": {"type": "ByUser"},
    "rules": [
        {
            "subjects": [{"kind": "Group", "group": {"name": "system:authenticated"}}],
            "resource_rules": [
                {
                    "verbs": ["*"],
                    "api_groups": ["", "events.k8s.io"],
                    "resources": ["events"],
                    "namespaces": ["*"],
                    "cluster_scope": True,
                }
            ],
        }
    ],
}


def create(context: Context) -> list[pulumi.Resource]:
    """The priority level of events, and the schema that sends them there."""
    level = k8s.flowcontrol.v1.PriorityLevelConfiguration(
        NAME, metadata={"name": NAME}, spec=LEVEL, opts=context.options()
    )
    schema = k8s.flowcontrol.v1.FlowSchema(
        NAME, metadata={"name": NAME}, spec=SCHEMA, opts=context.then([level]).options()
    )
    return [level, schema]
