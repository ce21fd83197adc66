"""Hyperparameters as the strings that the service takes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from cdk_sagemaker_training.jobs import JobRequest
from cdk_sagemaker_training.tokens import is_unresolved

# Limits of the service model (botocore's sagemaker, CreateTrainingJobRequest), told here in the words of the props.
_MOST_HYPERPARAMETERS = 100
_LONGEST_HYPERPARAMETER = 2_500


def encode_hyperparameter(name: str, value: Any) -> str:
    """A hyperparameter as the string from which SageMaker's toolkit makes ``value`` again.

    The toolkit decodes each string as JSON and, where it is none, takes it as it stands. So text goes as it is unless it
    would be taken for JSON, like ``"5"``; everything else goes as JSON. Text with a token goes as it is.
    """
    if is_unresolved(value) and not isinstance(value, str):
        raise ValueError(
            f"hyperparameters[{name!r}] must be text where it is known only later, "
            "like sfn.JsonPath.format('{}', sfn.JsonPath.string_at('$.steps')), got a token that is not text"
        )
    if isinstance(value, str):
        return json.dumps(value) if _is_json(value) and not is_unresolved(value) else value
    if isinstance(value, bool | int | float | list | tuple | dict):
        return json.dumps(value)
    raise ValueError(
        f"hyperparameters[{name!r}] must be text, a number, a bool, a list or a dict, like 0.001, got {value!r}"
    )


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


def hyperparameters(given: Mapping[str, Any], job_request: JobRequest) -> dict[str, str]:
    for name in given:
        if name in job_request.hyperparameters:
            raise ValueError(
                f"hyperparameters must leave {name!r} to the job, which sets it; say it there, like launcher=Torchrun()"
            )
    values = {**given, **job_request.overrides}
    encoded = {name: encode_hyperparameter(name, value) for name, value in values.items()}
    encoded.update(job_request.hyperparameters)
    if len(encoded) > _MOST_HYPERPARAMETERS:
        raise ValueError(
            f"hyperparameters must be at most {_MOST_HYPERPARAMETERS}, with the job's own {len(job_request.hyperparameters)}, "
            f"like {{'steps': 5_000}} with a file in a channel for the rest, got {len(encoded)}"
        )
    for name, text in encoded.items():
        if not is_unresolved(text) and len(text) > _LONGEST_HYPERPARAMETER:
            raise ValueError(
                f"hyperparameters[{name!r}] must be at most {_LONGEST_HYPERPARAMETER} characters, "
                f"like the S3 URI of a file that holds it, got {len(text)} characters beginning {text[:20]!r}"
            )
    return encoded
