"""Requests of any operation that boto3 can make, drawn by a seed from the services' models: valid and invalid ones."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import botocore.session
from botocore.config import Config
from botocore.exceptions import ClientError, ParamValidationError
from botocore.model import Shape

SERVICES = (
    "batch",
    "cloudformation",
    "cloudwatch",
    "codebuild",
    "ecr",
    "efs",
    "events",
    "fsx",
    "iam",
    "kms",
    "lambda",
    "logs",
    "s3",
    "sagemaker",
    "scheduler",
    "secretsmanager",
    "sns",
    "sqs",
    "ssm",
    "stepfunctions",
    "sts",
)
# Whose names are resolved, with a prefix of their own before the account's.
_OTHER_HOSTS = {
    "logs": ("GetLogObject", "StartLiveTail"),
    "s3": ("WriteGetObjectResponse",),
    "stepfunctions": ("StartSyncExecution", "TestState"),
}
_TEXT = [
    "a",
    "",
    "x" * 70,
    "role",
    "my-bucket",
    "s3://my-bucket/x",
    "{}",
    "[]",
    "not json",
    "-1",
    "é",
    "a b",
    "us-east-1",
    "*",
]
_TEXT += ["2020-01-01T00:00:00Z", "rate(1 minute)", "name-1", "name-1", "arn:aws:iam::123456789012:role/none"]
_TEXT += ["arn:aws:states:us-east-1:123456789012:stateMachine:m", "arn:aws:sns:us-east-1:123456789012:t"]
_DEEPEST = 6


@dataclass(frozen=True)
class Answer:
    """The answer to a request: its HTTP status, and the error's code, "" for none."""

    service: str
    operation: str
    request: Any
    status: int
    code: str = ""


class Requests:
    """Requests of a seed.

    Args:
        seed: of all that is drawn.
        environment: the account's, with its keys.
    """

    def __init__(self, seed: int, environment: dict[str, str]) -> None:
        self._random = random.Random(seed)
        self._environment = environment
        self._session = botocore.session.Session()

    def answers(self, service: str, each: int) -> Iterator[Answer]:
        """The answers to so many requests of each operation; what botocore itself refuses is not sent."""
        client = self._session.create_client(
            service,
            region_name="us-east-1",
            endpoint_url=self._environment["AWS_ENDPOINT_URL"],
            aws_access_key_id=self._environment["AWS_ACCESS_KEY_ID"],
            aws_secret_access_key=self._environment["AWS_SECRET_ACCESS_KEY"],
            aws_session_token=self._environment.get("AWS_SESSION_TOKEN"),
            config=Config(
                retries={"total_max_attempts": 1},
                parameter_validation=False,
                read_timeout=60,
                s3={"addressing_style": "path"},
            ),
        )
        model = client.meta.service_model
        for operation in model.operation_names:
            if operation in _OTHER_HOSTS.get(service, ()):
                continue
            shape = model.operation_model(operation).input_shape
            for _ in range(each):
                request = self._value(shape) if shape else {}
                answer = _answer(client, operation, request)
                if answer is not None:
                    yield Answer(service, operation, request, *answer)

    def _value(self, shape: Shape, depth: int = 0) -> Any:
        draw: Callable[[], Any]
        kind = shape.type_name
        if kind == "structure":
            return self._structure(shape, depth)
        if kind == "list":
            return [self._value(shape.member, depth + 1) for _ in range(self._size(depth))]
        if kind == "map":
            return {self._one(*_TEXT) or "k": self._value(shape.value, depth + 1) for _ in range(self._size(depth))}
        if kind == "string":
            enum = getattr(shape, "enum", None)
            return self._one(*enum) if enum and self._often(0.85) else self._one(*_TEXT)
        draw = {
            "boolean": lambda: self._often(0.5),
            "blob": lambda: self._one(b"", b"x", b"{}"),
            "timestamp": lambda: self._one(0, 1.7e9, "2024-01-01T00:00:00Z"),
            "float": lambda: self._one(0.0, 1.5, -2.0, 1e10),
            "double": lambda: self._one(0.0, 1.5, -2.0, 1e10),
        }.get(kind, lambda: self._one(0, 1, -1, 5, 100, 2**31, 3600))
        return draw()

    def _structure(self, shape: Any, depth: int) -> dict[str, Any]:
        found = {}
        for name, member in shape.members.items():
            if name == "ContentLength":  # more than the body has is waited for, on AWS for 20 seconds
                continue
            required = name in shape.required_members
            likely = 0.95 if required else 0.0 if depth > _DEEPEST else 0.35 if depth < 2 else 0.15
            if self._often(likely):
                found[name] = self._value(member, depth + 1)
        return found

    def _size(self, depth: int) -> int:
        return int(self._one(0, 1, 1, 2)) if depth < _DEEPEST else 0

    def _one(self, *choices: Any) -> Any:
        return self._random.choice(choices)

    def _often(self, probability: float) -> bool:
        return self._random.random() < probability


def _answer(client: Any, operation: str, request: Any) -> tuple[int, str] | None:
    """The status and the error's code of an answer; None where botocore could not send the request."""
    try:
        found = client._make_api_call(operation, request)
    except ClientError as error:
        return int(error.response["ResponseMetadata"]["HTTPStatusCode"]), error.response["Error"]["Code"]
    except ParamValidationError:
        return None
    except (ConnectionError, OSError):
        raise
    except Exception as error:  # of botocore's serializers and rules of endpoints, or its parsers of what moto answers
        return None if type(error).__module__.startswith(("botocore", "builtins")) else (0, repr(error))
    return int(found["ResponseMetadata"]["HTTPStatusCode"]), ""
