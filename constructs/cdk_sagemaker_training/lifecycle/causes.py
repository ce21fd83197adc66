"""Why a training job did not complete: what AWS says of it, as a table of signs, and the cause that each is a sign of."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

from cdk_sagemaker_training.props.prop import kind


@kind("Cause.CAPACITY")
class Cause(StrEnum):
    """Why a job was not created, failed or was stopped; what ``retries`` of a TrainingWorkflow are given by.

    Attributes:
        THROTTLED: CreateTrainingJob was throttled.
        SERVICE_ERROR: CreateTrainingJob was not answered, or with a server error.
        QUOTA: A quota is used up, such as that of machines of a type.
        NOT_AVAILABLE: The region has no such machines, or a quota is smaller than the job although none of it is used: no wait
            helps.
        CAPACITY: AWS has no machines of the type.
        HOST_LOST: A machine failed, or SageMaker itself did: ``InternalServerError``.
        INTERRUPTED: A spot job was interrupted and found no machines within its ``max_wait``.
        RUNTIME_EXCEEDED: The job ran for its ``max_runtime``.
        OUT_OF_MEMORY: A host or an accelerator has too little memory.
        DATA_NOT_FOUND: A channel's data are not there, or the role may not read them.
        ALGORITHM_ERROR: The script failed.
        STOPPED: Somebody stopped the job.
        SILENT: A ``Silence`` of ``stop_when`` stopped the job; no sign of AWS's.
        PREEMPTED: AWS Batch stopped the job for another one of its queue's quota shares, and runs it again itself.
    """

    THROTTLED = "throttled"
    SERVICE_ERROR = "service error"
    QUOTA = "quota"
    NOT_AVAILABLE = "not available"
    CAPACITY = "capacity"
    HOST_LOST = "host lost"
    INTERRUPTED = "interrupted"
    RUNTIME_EXCEEDED = "runtime exceeded"
    OUT_OF_MEMORY = "out of memory"
    DATA_NOT_FOUND = "data not found"
    ALGORITHM_ERROR = "algorithm error"
    STOPPED = "stopped"
    SILENT = "silent"
    PREEMPTED = "preempted"

    @property
    def state(self) -> str:
        """It as part of a state's name, such as `OutOfMemory`."""
        return "".join(word.capitalize() for word in self.split())


Member = Literal["Error", "Message", "FailureReason", "SecondaryStatus"]


@dataclass(frozen=True)
class Sign:
    """A sign of a cause.

    It stands in the error's name or its message, where CreateTrainingJob was refused, else in a member of DescribeTrainingJob's
    response.
    """

    member: Member
    pattern: str  # a value, in which ``*`` is any text
    cause: Cause
    source: str  # who says so


_PIPELINES = "SageMaker Developer Guide, Retry Policy for Pipeline Steps"
_SDK_RETRIES = "botocore, retries/standard.py"
_JAVA_SDK = "AWS SDK for Java, AwsServiceException"
_REPORTS = "users' reports; AWS documents none of these texts"
_SECONDARY_STATUS = "service model, SecondaryStatus"

# The first sign that holds decides.
SIGNS: tuple[Sign, ...] = (
    Sign(
        "Message",
        "*is not available in this region*",
        Cause.NOT_AVAILABLE,
        "aws/amazon-sagemaker-examples 1001",
    ),
    Sign(
        "Message",
        "*with current utilization of 0 Instances*",
        Cause.NOT_AVAILABLE,
        "zenml-io/zenml 847; data-science-on-aws/data-science-on-aws 200",
    ),
    Sign("Error", "SageMaker.ResourceLimitExceededException", Cause.QUOTA, "service model, CreateTrainingJob's errors"),
    Sign("Error", "SageMaker.SdkClientException", Cause.SERVICE_ERROR, "AWS SDK for Java, SdkClientException"),
    Sign("Message", "*Rate exceeded*", Cause.THROTTLED, "AWS re:Post, sagemaker-python-throttlingexception"),
    Sign("Message", "*ThrottlingException*", Cause.THROTTLED, f"{_SDK_RETRIES}, throttled error codes"),
    *(
        Sign("Message", f"*Status Code: {code}*", Cause.SERVICE_ERROR, f"{_SDK_RETRIES}, transient codes; {_JAVA_SDK}")
        for code in (500, 502, 503, 504)
    ),
    Sign(
        "Message",
        "No S3 objects found under S3 URL*",
        Cause.DATA_NOT_FOUND,
        "aws/amazon-sagemaker-examples 2267 and 2489",
    ),
    Sign("FailureReason", "CapacityError*", Cause.CAPACITY, f"{_PIPELINES}; DIAGNijmegen/rse-grand-challenge 2631"),
    Sign(
        "FailureReason",
        "InternalServerError*",
        Cause.HOST_LOST,
        "service model, RetryStrategy; aws/sagemaker-python-sdk 70",
    ),
    Sign(
        "FailureReason",
        "ClientError: Please use an instance type with more memory*",
        Cause.OUT_OF_MEMORY,
        "DIAGNijmegen/rse-grand-challenge, amazon_sagemaker_base.py",
    ),
    Sign("FailureReason", "*CUDA out of memory*", Cause.OUT_OF_MEMORY, "PyTorch, torch.OutOfMemoryError; VIAME 146"),
    Sign("FailureReason", "*OutOfMemoryError*", Cause.OUT_OF_MEMORY, "PyTorch, torch.OutOfMemoryError"),
    Sign("FailureReason", "ClientError: Data download failed*", Cause.DATA_NOT_FOUND, _REPORTS),
    Sign(
        "FailureReason",
        "AlgorithmError*",
        Cause.ALGORITHM_ERROR,
        "aws/amazon-sagemaker-examples 372, 1224 and 1234",
    ),
    Sign("SecondaryStatus", "MaxRuntimeExceeded", Cause.RUNTIME_EXCEEDED, _SECONDARY_STATUS),
    Sign("SecondaryStatus", "MaxWaitTimeExceeded", Cause.INTERRUPTED, _SECONDARY_STATUS),
    Sign("SecondaryStatus", "Stopped", Cause.STOPPED, _SECONDARY_STATUS),
)

# CreateTrainingJob was refused, so there is no job, and the same call is repeated; otherwise the next job is another one.
REFUSALS = frozenset(sign.cause for sign in SIGNS if sign.member in ("Error", "Message")) - {
    Cause.DATA_NOT_FOUND,
    Cause.NOT_AVAILABLE,
}
