"""A typed client of workflows, executions and training jobs, for scripts, notebooks and the command line.

It calls AWS by boto3, and thus the local account as well, and imports neither aws_cdk nor jsii::

    from cdk_sagemaker_training.client import Account

    execution = Account().workflow("Digits/Training").start({"epochs": 3})
    execution.wait()
    print(execution.job().metrics()[-1])

Each call is one that the caller's own credentials must allow: states:ListStateMachines, DescribeStateMachine,
ListTagsForResource, StartExecution, DescribeExecution, ListExecutions, GetExecutionHistory and StopExecution;
cloudformation:GetTemplate; sagemaker:ListTrainingJobs, DescribeTrainingJob, ListTags and StopTrainingJob; logs:FilterLogEvents;
cloudwatch:GetMetricData; s3:GetObject and ListBucket.
"""

from cdk_sagemaker_training.client.account import Account, JobSummary
from cdk_sagemaker_training.client.cost import MachineTime, cost_of
from cdk_sagemaker_training.client.errors import NotFoundError, TrainingError
from cdk_sagemaker_training.client.executions import Execution, StateVisit
from cdk_sagemaker_training.client.hosts import Host, HostGroup
from cdk_sagemaker_training.client.jobs import Job
from cdk_sagemaker_training.client.logs import LogLine, LogReader
from cdk_sagemaker_training.client.metrics import MetricPoint
from cdk_sagemaker_training.client.workflows import Workflow

__all__ = [
    "Account",
    "Execution",
    "Host",
    "HostGroup",
    "Job",
    "JobSummary",
    "LogLine",
    "LogReader",
    "MachineTime",
    "MetricPoint",
    "NotFoundError",
    "StateVisit",
    "TrainingError",
    "Workflow",
    "cost_of",
]
