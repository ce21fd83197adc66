"""Retriers of calls in the state machines."""

from __future__ import annotations

from typing import Any

_OF_SAGEMAKER = (
    "SageMaker.AmazonSageMakerException",
    "SageMaker.SageMakerException",
    "SageMaker.SdkClientException",
)
# Beside ClientException, for requests that are wrong (service model of Batch).
OF_BATCH = ("Batch.BatchException", "Batch.ServerException", "Batch.SdkClientException")


def retry(times: int, *errors: str) -> dict[str, Any]:
    """Return a retrier for throttling and errors of a service.

    Args:
        times: Maximum number of retries.
        *errors: Error names; by default those of SageMaker, with which Step Functions does not distinguish throttling from other
            errors.
    """
    return {
        "ErrorEquals": list(errors or _OF_SAGEMAKER),
        "IntervalSeconds": 1,
        "BackoffRate": 2,
        "MaxAttempts": times,
        "MaxDelaySeconds": 60,
        "JitterStrategy": "FULL",
    }
