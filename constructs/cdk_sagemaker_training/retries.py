"""How the state machines repeat a call."""

from __future__ import annotations

from typing import Any


def retry(times: int) -> dict[str, Any]:
    """Throttling, refusals and errors of the service, which Step Functions does not tell apart for SageMaker."""
    return {
        "ErrorEquals": [
            "SageMaker.AmazonSageMakerException",
            "SageMaker.SageMakerException",
            "SageMaker.SdkClientException",
        ],
        "IntervalSeconds": 1,
        "BackoffRate": 2,
        "MaxAttempts": times,
        "MaxDelaySeconds": 60,
        "JitterStrategy": "FULL",
    }
