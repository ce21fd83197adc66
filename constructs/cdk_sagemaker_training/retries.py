"""How the state machines repeat a call."""

from __future__ import annotations

from typing import Any

_OF_SAGEMAKER = (
    "SageMaker.AmazonSageMakerException",
    "SageMaker.SageMakerException",
    "SageMaker.SdkClientException",
)


def retry(times: int, *errors: str) -> dict[str, Any]:
    """Throttling, refusals and errors of the service, which Step Functions does not tell apart for SageMaker.

    ``errors`` are those of another service.
    """
    return {
        "ErrorEquals": list(errors or _OF_SAGEMAKER),
        "IntervalSeconds": 1,
        "BackoffRate": 2,
        "MaxAttempts": times,
        "MaxDelaySeconds": 60,
        "JitterStrategy": "FULL",
    }
