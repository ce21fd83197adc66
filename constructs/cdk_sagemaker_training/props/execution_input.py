"""When each prop must be known: what an execution's input may decide, what a deployment may, and what the app itself must.

A prop that the input may decide takes ``sfn.JsonPath``, whole or within other text. One that a policy is made of must be known
when the stack is deployed, and takes CDK's other tokens. One that shapes the request, or is checked, must be known at synth.
``prop_types`` refuses the rest by the prop's name, and docs/members.md shows this table.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

from cdk_sagemaker_training.core.errors import must
from cdk_sagemaker_training.core.tokens import JSONATA, is_unresolved
from cdk_sagemaker_training.props.prop import Known

_TOKEN = re.compile(r"\$\{Token\[[^\]]*\]\}")


def check_known(prop: str, value: Any, known: Known | None, example: str) -> None:
    """Check that a prop is known as early as it must be.

    Args:
        prop: The prop's name.
        value: Its value.
        known: When it must be known, and why; None where an execution may decide it.
        example: A value, as Python source, for the message.
    """
    if known is None or known.when == "execution":
        return
    for token in tokens_in(value):
        in_input = is_in_input(token)
        if in_input or known.when == "synth":
            by = "is synthesized" if known.when == "synth" else "is deployed"
            got = "a place in the execution's input" if in_input else "a token"
            raise must(prop, f"be known when the app {by}, {known.why}", example, got)


def tokens_in(value: Any) -> Iterator[Any]:
    """Each token in a value.

    Args:
        value: Text, a number, a list, a dict, a ``Duration``, or these in each other.

    Yields:
        Tokens as they are encoded: text like ``${Token[TOKEN.1]}``, a number, or a list; and expressions of JSONata, like
        ``{% $states.input.steps %}``.
    """
    if isinstance(value, str):
        yield from _TOKEN.findall(value)
        yield from (match[0] for match in JSONATA.finditer(value))
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from tokens_in(key)
            yield from tokens_in(item)
    elif isinstance(value, list | tuple) and not is_unresolved(value):
        for item in value:
            yield from tokens_in(item)
    elif hasattr(type(value), "to_seconds"):
        # In the unit that it was said in: CDK converts no token.
        unit = value.unit_label() if value.is_unresolved() else "seconds"
        yield from tokens_in(getattr(value, f"to_{unit.replace('millis', 'milliseconds')}")(integral=False))
    elif isinstance(value, int | float | list | tuple) and is_unresolved(value):
        yield value


def is_in_input(token: Any) -> bool:
    """Whether a token is Step Functions', such as a place in an execution's input, and not one of CloudFormation's.

    Args:
        token: Text, a number or a list that holds nothing else than one token.
    """
    return (isinstance(token, str) and JSONATA.fullmatch(token) is not None) or is_jsonpath(token)


def is_jsonpath(token: Any) -> bool:
    """Whether a token is a JSONPath of Step Functions.

    Args:
        token: As of ``is_in_input``.
    """
    return bool(_paths(tuple(token) if isinstance(token, list | tuple) else token))


@cache
def _paths(token: Any) -> tuple[str, ...]:
    # Not imported above, since this takes longer than all else in this module, and who has a token has imported CDK.
    from aws_cdk import aws_stepfunctions as sfn

    return tuple(sfn.FieldUtils.find_referenced_paths({"token": list(token) if isinstance(token, tuple) else token}))


def page(known: Mapping[str, Known]) -> str:
    """The section of docs/members.md on what an execution's input may decide.

    Args:
        known: When props must be known, by ``"Owner.prop"``; the owner of a job's props is ``TrainingProps``.
    """
    rows = [
        f"| `{name.removeprefix('TrainingProps.')}` | {when} | {why.removeprefix('since ')} |"
        for name, (when, why) in sorted(
            known.items(), key=lambda row: (row[1].when != "execution", row[1].when, row[0])
        )
    ]
    return "\n".join([_PAGE, *rows]) + "\n"


_PAGE = """
## When a prop must be known

Text and numbers of the rows with *execution* accept a JSONPath into an execution's input, such as
`sfn.JsonPath.string_at("$.dataset")`, whole or within other text. Those with *deployment* accept CDK's other tokens, such as
a stack's parameters; those with *synth* accept neither. Names in dicts must be known at synth. A value that is known later
than that is an error with the prop's name. A data set for each execution is
`S3Channel(bucket, "datasets/", subfolder=sfn.JsonPath.string_at("$.dataset"))`: the job may read what lies below `datasets/`,
and nothing else, whatever the input is.

| prop | known by | how, or why not later |
|---|---|---|"""
