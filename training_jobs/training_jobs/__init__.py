"""A typed client of workflows, executions and training jobs, for scripts, notebooks and the command ``training-jobs``.

It calls AWS by boto3, and thus the local account as well, and needs neither aws_cdk nor Node::

    from training_jobs import Account

    execution = Account().workflow("Digits/Training").start({"epochs": 3})
    execution.wait()
    print(execution.job().metrics()[-1])

Each call is one that the caller's own credentials must allow: states:ListStateMachines, DescribeStateMachine,
ListTagsForResource, StartExecution, DescribeExecution, ListExecutions, GetExecutionHistory and StopExecution;
cloudformation:GetTemplate; sagemaker:ListTrainingJobs, DescribeTrainingJob, ListTags and StopTrainingJob; logs:FilterLogEvents;
cloudwatch:GetMetricData; s3:GetObject and ListBucket.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

# For editors and type checkers.
if TYPE_CHECKING:
    from training_jobs.client.account import Account, JobSummary
    from training_jobs.client.cost import MachineTime, cost_of
    from training_jobs.client.errors import NotFoundError, TrainingError
    from training_jobs.client.executions import Execution, StateVisit
    from training_jobs.client.hosts import Host, HostGroup
    from training_jobs.client.jobs import Job
    from training_jobs.client.logs import LogLine, LogReader
    from training_jobs.client.metrics import MetricPoint
    from training_jobs.client.workflows import Workflow

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

# Each name is imported on first use (PEP 562): the constructs and `training-jobs --help` import parts that need no client.
_MODULES = {
    "account": ("Account", "JobSummary"),
    "cost": ("MachineTime", "cost_of"),
    "errors": ("NotFoundError", "TrainingError"),
    "executions": ("Execution", "StateVisit"),
    "hosts": ("Host", "HostGroup"),
    "jobs": ("Job",),
    "logs": ("LogLine", "LogReader"),
    "metrics": ("MetricPoint",),
    "workflows": ("Workflow",),
}
_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"training_jobs.client.{_MODULE_OF[name]}"), name)


def __dir__() -> list[str]:
    return __all__
