"""Encodes hyperparameters as the strings of CreateTrainingJob."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from cdk_sagemaker_training.core.errors import must
from cdk_sagemaker_training.core.tokens import is_unresolved
from cdk_sagemaker_training.data.s3 import S3Prefix
from cdk_sagemaker_training.jobs.kinds import JobRequest
from cdk_sagemaker_training.props.execution_input import is_in_input, tokens_in

# Limits of the service model (botocore's sagemaker, CreateTrainingJobRequest), checked here so that messages name the prop.
_MOST_HYPERPARAMETERS = 100
_LONGEST_HYPERPARAMETER = 2_500
# What `.` of the service's pattern `.*` does not match in a value (java.util.regex.Pattern, "Line terminators").
_LINE_BREAK = re.compile("[\n\r\x85\u2028\u2029]")


def encode_hyperparameter(name: str, value: Any) -> str:
    """Encode a hyperparameter as the string from which SageMaker's toolkit decodes the same value.

    The toolkit decodes each string as JSON and keeps it unchanged if it is not valid JSON. So text is sent unchanged, except
    text that is valid JSON, like ``"5"``, or has a line break, which the service's pattern does not allow. Other values are sent
    as JSON, as by the SDK's framework estimators (``_json_encode_hyperparameters`` of the SageMaker Python SDK, version 2).

    Args:
        name: Name of the hyperparameter, for the message.
        value: Text, a number, a bool, a list, a dict, or an ``S3Prefix``, which is sent as its URI.

    Raises:
        ValueError: ``value`` is None, which a script would read as the text "null", has no JSON form, or is a token that is not
            text.
    """
    if isinstance(value, S3Prefix):
        return value.uri
    if value is None:
        rule = "be left out where it has no value, since the script would read the text 'null'"
        raise must(f"hyperparameters[{name!r}]", rule, "'none' or 0", "None")
    if is_unresolved(value) and not isinstance(value, str):
        example = "sfn.JsonPath.format('{}', sfn.JsonPath.string_at('$.steps'))"
        raise must(f"hyperparameters[{name!r}]", "be text if it is a token", example, "a token that is not text")
    if isinstance(value, str):
        return (
            json.dumps(value) if _LINE_BREAK.search(value) or (_is_json(value) and not is_unresolved(value)) else value
        )
    _check_json(name, value, ())
    return json.dumps(value)


def _check_json(name: str, value: Any, inside: tuple[int, ...]) -> None:
    """Raise ``ValueError`` where JSON would not round-trip ``value``; ``inside`` are the ids of the objects that contain it."""
    prop = f"hyperparameters[{name!r}]"
    if id(value) in inside:
        raise must(prop, "not contain itself", "[1, 2]", repr(value))
    if isinstance(value, dict):
        for key in value:
            if not isinstance(key, str):
                raise must(prop, "have keys of text", "{'a': 1}", f"{key!r} in it")
        value, inside = list(value.values()), (*inside, id(value))
    if isinstance(value, list | tuple):
        for item in value:
            _check_json(name, item, (*inside, id(value)))
    elif inside and not isinstance(value, list | tuple | dict) and any(map(is_in_input, tokens_in(value))):
        rule = "be known at synthesis, except as a whole text"
        raise must(prop, rule, "sfn.JsonPath.string_at('$.steps')", "a JSONPath inside a list or dict")
    elif value is not None and not isinstance(value, str | bool | int | float):
        raise must(prop, "be text, a number, a bool, a list or a dict", "0.001", repr(value))


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


def hyperparameters(given: Mapping[str, Any], job_request: JobRequest, of_code: Mapping[str, str]) -> dict[str, str]:
    """Return the encoded hyperparameters of a request.

    Args:
        given: The user's hyperparameters.
        job_request: The request, which adds its own and overrides some of the user's.
        of_code: Those of the prop ``code``, encoded.

    Raises:
        ValueError: A hyperparameter is set by the job itself, or a limit of the service is exceeded.
    """
    for name in given:
        if name in of_code:
            example = "code=TrainingCode('src', 'train.py')"
            raise must("hyperparameters", f"not contain {name!r}, which code sets", example, repr(given[name]))
        if name in job_request.hyperparameters:
            rule = f"not contain {name!r}, which the job sets; set it there"
            raise must("hyperparameters", rule, "launcher=Torchrun()", repr(given[name]))
    values = {**given, **job_request.overrides}
    encoded = {name: encode_hyperparameter(name, value) for name, value in values.items()}
    of_job = {**job_request.hyperparameters, **of_code}
    encoded.update(of_job)
    if len(encoded) > _MOST_HYPERPARAMETERS:
        rule = f"be at most {_MOST_HYPERPARAMETERS}, including {len(of_job)} of the job"
        raise must("hyperparameters", rule, "{'steps': 5_000} with a file in a channel for the rest", f"{len(encoded)}")
    for name, text in encoded.items():
        if not is_unresolved(text) and len(text) > _LONGEST_HYPERPARAMETER:
            rule, got = (
                f"be at most {_LONGEST_HYPERPARAMETER} characters",
                f"{len(text)} characters beginning {text[:20]!r}",
            )
            raise must(f"hyperparameters[{name!r}]", rule, "the S3 URI of a file that holds it", got)
    return encoded
