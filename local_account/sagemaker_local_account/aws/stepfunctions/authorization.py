"""What requests to Step Functions are authorized by."""

from __future__ import annotations

from sagemaker_local_account.iam.service_authorization import ServiceAuthorization

_ROLE = ("roleArn", "states.amazonaws.com")
_ON_EXECUTIONS = ("DescribeExecution", "GetExecutionHistory", "RedriveExecution", "StopExecution")
_ON_MACHINES = ("DescribeStateMachine", "ListExecutions", "StartExecution")
AUTHORIZATION = ServiceAuthorization(
    "states",
    resources={
        **dict.fromkeys(_ON_EXECUTIONS, "{executionArn}"),
        **dict.fromkeys(_ON_MACHINES, "{stateMachineArn}"),
    },
    without_resource={"ListStateMachines"},
    passed_roles=dict.fromkeys(("CreateStateMachine", "UpdateStateMachine"), _ROLE),
)
