"""A request of CreateTrainingJob as an object of SageMaker's SDK, version 3, for a notebook."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from training_jobs.client.errors import TrainingError
from training_jobs.client.jobs import tags_without_execution

if TYPE_CHECKING:
    import boto3

# The members that ModelTrainer takes as they are (model_trainer.py of sagemaker-train 1.27, `_create_training_job_args`).
_ARGUMENTS = {
    "RoleArn": "role",
    "HyperParameters": "hyperparameters",
    "Environment": "environment",
    "StoppingCondition": "stopping_condition",
    "OutputDataConfig": "output_data_config",
    "CheckpointConfig": "checkpoint_config",
}
_OF_ALGORITHM = {
    "TrainingImage": "training_image",
    "AlgorithmName": "algorithm_name",
    "TrainingInputMode": "training_input_mode",
    "TrainingImageConfig": "training_image_config",
}
_OF_COMPUTE = {"EnableManagedSpotTraining": "enable_managed_spot_training"}
_OF_NETWORKING = {
    "EnableNetworkIsolation": "enable_network_isolation",
    "EnableInterContainerTrafficEncryption": "enable_inter_container_traffic_encryption",
}
# Those that one of its methods takes.
_METHODS = {
    "RetryStrategy": "with_retry_strategy",
    "InfraCheckConfig": "with_infra_check_config",
    "SessionChainingConfig": "with_session_chaining_config",
    "RemoteDebugConfig": "with_remote_debug_config",
    "TensorBoardOutputConfig": "with_tensorboard_output_config",
}
_BY_HAND = {"AlgorithmSpecification", "InputDataConfig", "ResourceConfig", "Tags", "TrainingJobName", "VpcConfig"}


def model_trainer(request: Mapping[str, Any], shape: Any, session: boto3.Session, name: str) -> Any:
    """Return the ``sagemaker.train.ModelTrainer`` whose ``train()`` sends a request.

    Args:
        request: A CreateTrainingJob request.
        shape: The input shape of CreateTrainingJob, of botocore.
        session: boto3's session.
        name: How the job's name begins; the time follows.

    Raises:
        TrainingError: SageMaker's SDK is not installed, or ModelTrainer has no argument for a member.
    """
    request = {**request, "Tags": tags_without_execution(request)}
    unknown = [
        value for member in request if member != "TrainingJobName" for value in _of_the_execution(request[member])
    ]
    if unknown:
        raise TrainingError(
            f"the request takes {', '.join(unknown)} from an execution's input, which a ModelTrainer does not have"
        )
    algorithm = {**request["AlgorithmSpecification"]}
    metrics = algorithm.pop("MetricDefinitions", [])
    known = {*_ARGUMENTS, *_OF_COMPUTE, *_OF_NETWORKING, *_METHODS, *_BY_HAND}
    others = [
        *(member for member in request if member not in known),
        *(f"AlgorithmSpecification.{member}" for member in algorithm if member not in _OF_ALGORITHM),
    ]
    if others:
        raise TrainingError(
            f"ModelTrainer has no argument for {', '.join(sorted(others))}; `training-jobs export` prints the call of "
            "TrainingJob.create that sends them"
        )
    try:
        from sagemaker.core import shapes
        from sagemaker.core.helper.session_helper import Session
        from sagemaker.core.training.configs import Compute, Networking
        from sagemaker.train import ModelTrainer
    except ImportError as error:
        install = "`pip install 'training-jobs[sagemaker]'`"
        raise TrainingError(f"model_trainer() needs SageMaker's SDK, version 3: {install} ({error})") from None

    # The SDK's classes are the shapes of the service model, with members in snake case (sagemaker-core's README, "Shapes").
    snake = {key: snake_case(value, shape.members[key]) for key, value in request.items()}
    image = snake_case(algorithm, shape.members["AlgorithmSpecification"])
    networking = {
        **snake.get("VpcConfig", {}),
        **{new: request[old] for old, new in _OF_NETWORKING.items() if old in request},
    }
    trainer = ModelTrainer(
        sagemaker_session=Session(boto_session=session),
        base_job_name=name,
        compute=Compute(
            **snake["ResourceConfig"], **{new: request[old] for old, new in _OF_COMPUTE.items() if old in request}
        ),
        networking=Networking(**networking) if networking else None,
        input_data_config=[shapes.Channel(**channel) for channel in snake.get("InputDataConfig", [])],
        tags=[shapes.Tag(**tag) for tag in snake["Tags"]] or None,
        **{new: image[snake_member(old)] for old, new in _OF_ALGORITHM.items() if old in algorithm},
        **{new: snake[old] for old, new in _ARGUMENTS.items() if old in request},
    )
    for member, method in _METHODS.items():
        if member in request:
            getattr(trainer, method)(getattr(shapes, shape.members[member].name)(**snake[member]))
    if metrics:
        trainer.with_metric_definitions([shapes.MetricDefinition(name=it["Name"], regex=it["Regex"]) for it in metrics])
    return trainer


def _of_the_execution(value: Any) -> list[str]:
    """The texts in angle brackets of ``planned_request``."""
    if isinstance(value, list | dict):
        items = value.values() if isinstance(value, dict) else value
        return [found for item in items for found in _of_the_execution(item)]
    return [value] if isinstance(value, str) and re.fullmatch(r"<[^<>]+>", value) else []


def snake_case(value: Any, shape: Any) -> Any:
    """Return a value with the members of its structures in snake case.

    Args:
        value: The value of a request.
        shape: Its shape, of botocore.
    """
    if shape.type_name == "structure":
        return {snake_member(name): snake_case(item, shape.members[name]) for name, item in value.items()}
    if shape.type_name == "list":
        return [snake_case(item, shape.member) for item in value]
    return value


def snake_member(member: str) -> str:
    """Return a member's name in snake case: ``VolumeSizeInGB`` as ``volume_size_in_gb``.

    Args:
        member: The member's name.
    """
    words = re.sub(r"(.)([A-Z][a-z]+)", r"\1_\2", member)
    return re.sub(r"([a-z0-9])([A-Z])", r"\1_\2", words).lower()
