"""A state machine that runs one of SageMaker's own tuning jobs each time it is started."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Unpack

import jsii
from aws_cdk import aws_iam as iam
from aws_cdk import aws_stepfunctions as sfn
from constructs import Construct

from cdk_sagemaker_training.core.nag import Suppressions
from cdk_sagemaker_training.props.prop import LITERAL
from cdk_sagemaker_training.props.prop_types import checked
from cdk_sagemaker_training.request.props import TrainingProps, check_props
from cdk_sagemaker_training.workflow.launch import Launch
from cdk_sagemaker_training.workflow.state_machine_base import StateMachineBase
from cdk_sagemaker_training.workflow.state_machines import default_logs, make_state_machine
from cdk_sagemaker_training.workflow.sweep_values import Objective
from cdk_sagemaker_training.workflow.tuning_ranges import ParameterRange, tuning_request

# The rule that Step Functions manages for these (its guide, "Tune a Machine Learning Model", IAM examples).
_RULE = "StepFunctionsGetEventsForSageMakerTuningJobsRule"
_WHY = {
    "AwsSolutions-IAM5[Resource::*]": "log deliveries have no resource",
    "AwsSolutions-SF2": "an execution waits for one job, whose hosts do not emit traces",
}
_WHY_JOBS = "a tuning job's name, of at most 32 characters, is a hash of its execution"


@jsii.implements(iam.IGrantable)
class HyperparameterTuning(StateMachineBase, Construct):
    """A state machine that runs a tuning job of SageMaker, such as a Bayesian search, each time it is started.

    It is one state, `createHyperParameterTuningJob.sync`, whose output is the tuning job's description, with the best training
    job in ``BestTrainingJob``. A sweep (``TrainingSweep``) runs workflows instead, with their retries, queues and budgets, and
    repeats only what is missing. Step Functions stops the tuning job with its execution.

    What the training jobs of a tuning job cannot have is refused by the prop's name: among others ``checkpoints`` and ``spot``,
    since all of them would have the same place in S3. The local account runs no tuning jobs, and deploys no stack with one.

    Attributes:
        state_machine: The state machine.
        role: The jobs' role.
        props: The props of the training jobs.
    """

    @checked
    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        ranges: Annotated[Mapping[str, ParameterRange], LITERAL],
        objective: Objective,
        max_jobs: Annotated[int, LITERAL],
        max_parallel_jobs: Annotated[int, LITERAL] = 1,
        strategy: Annotated[Literal["Bayesian", "Random", "Grid", "Hyperband"], LITERAL] = "Bayesian",
        early_stopping: Annotated[bool, LITERAL] = False,
        random_seed: Annotated[int | None, LITERAL] = None,
        logs: sfn.LogOptions | None = None,
        **props: Unpack[TrainingProps],
    ) -> None:
        """Create the state machine, and what its jobs need.

        Args:
            scope: The construct that the tuning is part of.
            id: Its id among that construct's children.
            ranges: What is searched, by hyperparameter: ``ContinuousParameter``, ``IntegerParameter`` or
                ``CategoricalParameter``.
            objective: The metric of ``metric_definitions`` that is minimized or maximized.
            max_jobs: How many training jobs a tuning job runs.
            max_parallel_jobs: How many of them at once. A Bayesian search learns from those that ended.
            strategy: How values are chosen (SageMaker's guide, "Understand the hyperparameter tuning strategies").
            early_stopping: Whether training jobs are stopped that will not be better than others.
            random_seed: The seed of the search. Default: SageMaker's.
            logs: What is kept of executions. Default: as of ``TrainingWorkflow``.
            props: The props of the training jobs: see ``TrainingProps``.

        Raises:
            TypeError: For a prop that is not there, and for one that is missing.
            ValueError: For a prop that breaks a rule, with its name.
        """
        super().__init__(scope, id)
        check_props("HyperparameterTuning", props)
        _check(ranges, objective, max_jobs, max_parallel_jobs, props)
        launch = Launch(self, props)
        if len(launch.job_requests) != 1:
            raise ValueError(
                "job must be one that makes one request, like DataParallelJob(InstanceGroup('ml.g5.xlarge')), got "
                f"{type(props['job']).__name__} with {len(launch.job_requests)}"
            )
        config: dict[str, Any] = {
            "Strategy": strategy,
            "HyperParameterTuningJobObjective": {"Type": objective.goal, "MetricName": objective.metric},
            "ResourceLimits": {"MaxNumberOfTrainingJobs": max_jobs, "MaxParallelTrainingJobs": max_parallel_jobs},
            "TrainingJobEarlyStoppingType": "Auto" if early_stopping else "Off",
            **({} if random_seed is None else {"RandomSeed": random_seed}),
        }
        training = launch.request(launch.job_requests[0], job_name="$$.Execution.Name", checkpoint_folder="''")
        # 32 characters, as many as the name may have; another for each redrive, after which the former name is in use.
        execution = "States.Format('{}/{}', $$.Execution.Id, $$.Execution.RedriveCount)"
        request = tuning_request(training, name=f"States.Hash({execution}, 'MD5')", config=config, ranges=ranges)
        definition = {
            "Comment": "Runs a hyperparameter tuning job",
            "StartAt": "Tune",
            "States": {
                "Tune": {
                    "Type": "Task",
                    "Resource": f"arn:{launch.partition}:states:::sagemaker:createHyperParameterTuningJob.sync",
                    "Parameters": request,
                    "End": True,
                }
            },
        }
        log_options = logs or default_logs(self)
        self.state_machine = make_state_machine(self, launch.stack.to_json_string(definition), log_options)
        jobs = launch.stack.format_arn(service="sagemaker", resource="hyper-parameter-tuning-job", resource_name="*")
        actions = [f"{verb}HyperParameterTuningJob" for verb in ("Create", "Describe", "Stop")]
        rule = launch.stack.format_arn(service="events", resource="rule", resource_name=_RULE)
        for statement in (
            # AddTags as of a training job, of which Step Functions' guide has ListTags only (aws-cdk 32294).
            iam.PolicyStatement(
                actions=[f"sagemaker:{one}" for one in (*actions, "AddTags", "ListTags")], resources=[jobs]
            ),
            launch.pass_role_policy(),
            iam.PolicyStatement(
                actions=["events:DescribeRule", "events:PutRule", "events:PutTargets"], resources=[rule]
            ),
        ):
            self.state_machine.add_to_role_policy(statement)
        suppressions = Suppressions(self)
        suppressions.add(_WHY)
        suppressions.add_wildcards([jobs], _WHY_JOBS)
        self.role = launch.role
        self.props = props


def _check(
    ranges: Mapping[str, ParameterRange], objective: Objective, jobs: int, parallel: int, props: TrainingProps
) -> None:
    if not ranges:
        raise ValueError(
            f"ranges must be of at least one hyperparameter, like {{'lr': ContinuousParameter(1e-4, 0.1)}}, got {ranges!r}"
        )
    if not 1 <= parallel <= jobs:
        raise ValueError(f"max_parallel_jobs must be 1 to max_jobs, like 2, got {parallel} of {jobs}")
    if objective.metric not in (props.get("metric_definitions") or {}):
        raise ValueError(
            f"objective.metric must be one of metric_definitions, {', '.join(props.get('metric_definitions') or ()) or 'none'}, "
            f"like Objective('loss', 'Minimize'), got {objective.metric!r}"
        )
    for name in ("checkpoints", "spot"):
        if props.get(name) is not None:
            raise ValueError(
                f"{name} must be left out of a tuning job, whose training jobs would all have the same place in S3, like "
                f"{name}=None: use a TrainingSweep, got {props[name]!r}"
            )
