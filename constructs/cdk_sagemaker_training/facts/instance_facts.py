"""The facts of instance types, of which rules skip those of a token and of an ``unlisted`` type."""

from __future__ import annotations

from cdk_sagemaker_training.core.tokens import is_unresolved
from cdk_sagemaker_training.core.unlisted import is_unlisted
from training_jobs.facts import instance_facts as shared
from training_jobs.facts.instance_facts import InstanceFacts as InstanceFacts
from training_jobs.facts.instance_facts import family as family
from training_jobs.facts.instance_facts import processor as processor
from training_jobs.facts.instance_facts import smallest_with as smallest_with


def instance_facts(instance_type: str) -> InstanceFacts | None:
    """Return the facts of an instance type.

    Returns:
        The facts, or None for a token, an ``unlisted`` type and one that has no facts; rules on facts skip these.
    """
    if is_unresolved(instance_type) or is_unlisted(instance_type):
        return None
    return shared.instance_facts(instance_type)
