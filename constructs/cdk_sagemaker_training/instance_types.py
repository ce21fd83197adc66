"""Which machines SageMaker trains on."""

from __future__ import annotations

import difflib
import re

from cdk_sagemaker_training.service_model import training_instance_types
from cdk_sagemaker_training.tokens import is_unresolved

_EC2_TYPE = re.compile(r"[a-z][a-z0-9-]*\.[a-z0-9-]+")


def check_training_instance_type(instance_type: str, prop: str = "instance_type") -> None:
    """Raise ``ValueError`` unless SageMaker trains on ``instance_type``; the list is the service model's.

    Inference and notebooks have types of their own, Graviton's among them, on which no training job runs.
    """
    if is_unresolved(instance_type) or instance_type in training_instance_types():
        return
    if not isinstance(instance_type, str) or not instance_type.startswith("ml."):
        example = "ml.g5.xlarge"
        if isinstance(instance_type, str) and _EC2_TYPE.fullmatch(instance_type):
            example = f"ml.{instance_type}" if f"ml.{instance_type}" in training_instance_types() else example
        raise ValueError(f"{prop} must be a SageMaker training type like {example!r}, got {instance_type!r}")
    near = difflib.get_close_matches(instance_type, sorted(training_instance_types()), n=1)
    example = near[0] if near else "ml.g5.xlarge"
    raise ValueError(f"{prop} must be a type that SageMaker trains on, like {example!r}, got {instance_type!r}")
