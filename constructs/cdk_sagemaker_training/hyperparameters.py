"""Hyperparameters as the strings that the service takes."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from cdk_sagemaker_training.data import S3Prefix
from cdk_sagemaker_training.execution_input import is_in_input, tokens_in
from cdk_sagemaker_training.jobs import JobRequest
from cdk_sagemaker_training.tokens import is_unresolved

# Limits of the service model (botocore's sagemaker, CreateTrainingJobRequest), told here in the words of the props.
_MOST_HYPERPARAMETERS = 100
_LONGEST_HYPERPARAMETER = 2_500
# What `.` of the service's pattern `.*` does not match in a value (java.util.regex.Pattern, "Line terminators").
_LINE_BREAK = re.compile("[\n\r\x85\u2028\u2029]")


def encode_hyperparameter(name: str, value: Any) -> str:
    """A hyperparameter as the string from which SageMaker's toolkit makes ``value`` again.

    The toolkit decodes each string as JSON and, where it is none, takes it as it stands. So text goes as it is unless it
    would be taken for JSON, like ``"5"``, or has a line break, which the service's pattern of values does not take. All else
    goes as JSON, as the SDK's framework estimators send it (``_json_encode_hyperparameters`` of the SageMaker Python SDK,
    version 2): None as ``null``. A place in S3, such as TensorFlow's ``model_dir``, goes as its URI. Raises ``ValueError`` for
    what has no JSON form.
    """
    if isinstance(value, S3Prefix):
        return value.uri
    if is_unresolved(value) and not isinstance(value, str):
        raise ValueError(
            f"hyperparameters[{name!r}] must be text where it is known only later, "
            "like sfn.JsonPath.format('{}', sfn.JsonPath.string_at('$.steps')), got a token that is not text"
        )
    if isinstance(value, str):
        return (
            json.dumps(value) if _LINE_BREAK.search(value) or (_is_json(value) and not is_unresolved(value)) else value
        )
    _check_json(name, value, ())
    return json.dumps(value)


def _check_json(name: str, value: Any, inside: tuple[int, ...]) -> None:
    """Raise ``ValueError`` where JSON would not give ``value`` back; ``inside`` are the ids of what it lies in."""
    if id(value) in inside:
        raise ValueError(f"hyperparameters[{name!r}] must not hold itself, like [1, 2], got {value!r}")
    if isinstance(value, dict):
        for key in value:
            if not isinstance(key, str):
                raise ValueError(
                    f"hyperparameters[{name!r}] must have keys of text, like {{'a': 1}}, got {key!r} in it"
                )
        value, inside = list(value.values()), (*inside, id(value))
    if isinstance(value, list | tuple):
        for item in value:
            _check_json(name, item, (*inside, id(value)))
    elif isinstance(value, str) and inside and any(map(is_in_input, tokens_in(value))):
        raise ValueError(
            f"hyperparameters[{name!r}] must be known when the app is synthesized unless it is text of its own, "
            "like sfn.JsonPath.string_at('$.steps'), got a place in the execution's input inside"
        )
    elif value is not None and not isinstance(value, str | bool | int | float):
        raise ValueError(
            f"hyperparameters[{name!r}] must be text, a number, a bool, None, a list or a dict, like 0.001, got {value!r}"
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
