"""What requests to CloudWatch Logs are authorized by."""

from __future__ import annotations

from sagemaker_local_account.iam.service_authorization import ServiceAuthorization

# A stream's ARN contains its group's; a group's ARN ends before the stream's name.
_GROUP = "log-group:{logGroupName|logGroupIdentifier.after_group}:log-stream:"
_STREAM = _GROUP + "{logStreamName}"
AUTHORIZATION = ServiceAuthorization(
    "logs",
    resources={
        **dict.fromkeys(("CreateLogGroup", "DescribeLogStreams", "FilterLogEvents", "PutRetentionPolicy"), _GROUP),
        **dict.fromkeys(("CreateLogStream", "GetLogEvents", "PutLogEvents"), _STREAM),
    },
    without_resource={"DescribeLogGroups"},
)
