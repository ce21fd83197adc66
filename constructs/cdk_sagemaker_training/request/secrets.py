"""Warnings about secrets among environment variables and hyperparameters.

"Do not include any security-sensitive information including account access IDs, secrets, or tokens in any environment fields",
nor in hyperparameters (service model, CreateTrainingJobRequest): whoever may read the template, the definition or
DescribeTrainingJob reads them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from aws_cdk import Tokenization

from cdk_sagemaker_training.core.tokens import is_unresolved
from cdk_sagemaker_training.jobs.advice import Advice, advice
from cdk_sagemaker_training.request.context import JobContext

_INSTEAD = (
    "give the job the secret's name, like environment={'HF_TOKEN_NAME': secret.secret_name}, let its role read it, "
    "secret.grant_read(workflow), and have the script do so, boto3.client('secretsmanager').get_secret_value(SecretId=name)"
)
_NAMES = re.compile(r"(TOKEN|SECRET|PASSWORD|PASSWD|API_KEY|APIKEY|ACCESS_KEY)$", re.IGNORECASE)
# Prefixes that these services give to their tokens (GitHub's list of secret scanning patterns).
_VALUES = re.compile(
    r"hf_[A-Za-z0-9]{20,}|(AKIA|ASIA)[A-Z0-9]{16}|gh[pousr]_[A-Za-z0-9]{30,}|sk-[A-Za-z0-9_-]{20,}|xox[bp]-.{10,}"
)


def environment_advice(variables: Mapping[str, Any], context: JobContext) -> Iterator[Advice]:
    """Warn of environment variables that hold a secret, by their names or values."""
    yield from _warned("environment", variables, by_name=True)


def hyperparameters_advice(values: Mapping[str, Any], context: JobContext) -> Iterator[Advice]:
    """Warn of hyperparameters that hold a secret, by their values: `pad_token` is a name of many scripts."""
    yield from _warned("hyperparameters", values, by_name=False)


def _warned(prop: str, values: Mapping[str, Any], *, by_name: bool) -> Iterator[Advice]:
    for name, value in values.items():
        if not isinstance(value, str):
            continue
        if is_unresolved(value):
            tokens = Tokenization.reverse_string(value).tokens
            if any(type(token).__name__ == "CfnDynamicReference" for token in tokens):
                text = f"{prop}[{name!r}] is a dynamic reference, which CloudFormation replaces by the plain secret; {_INSTEAD}"
                yield from advice("secret-in-definition", text)
        elif _VALUES.fullmatch(value) or (by_name and value and _NAMES.search(name)):
            yield from advice("plain-secret", f"{prop}[{name!r}] looks like a secret in plain text; {_INSTEAD}")
