"""The services of the account, a row each: what their requests are authorized by, and their resource types in CloudFormation.

A service touches its own folder and its row here; services without a folder are moto's. `services.py` starts those that run.
"""

from __future__ import annotations

from dataclasses import dataclass

from sagemaker_local_account.aws.awslambda import authorization as awslambda
from sagemaker_local_account.aws.awslambda import resources as awslambda_resources
from sagemaker_local_account.aws.batch import authorization as batch
from sagemaker_local_account.aws.batch import resources as batch_resources
from sagemaker_local_account.aws.cloudformation import authorization as cloudformation
from sagemaker_local_account.aws.cloudformation import resources as cloudformation_resources
from sagemaker_local_account.aws.cloudwatch import authorization as cloudwatch
from sagemaker_local_account.aws.cloudwatch import resources as cloudwatch_resources
from sagemaker_local_account.aws.codebuild import authorization as codebuild
from sagemaker_local_account.aws.codebuild import resources as codebuild_resources
from sagemaker_local_account.aws.dynamodb import authorization as dynamodb
from sagemaker_local_account.aws.dynamodb import resources as dynamodb_resources
from sagemaker_local_account.aws.ec2 import authorization as ec2
from sagemaker_local_account.aws.ec2 import resources as ec2_resources
from sagemaker_local_account.aws.ecr import authorization as ecr
from sagemaker_local_account.aws.ecr import resources as ecr_resources
from sagemaker_local_account.aws.efs import resources as efs_resources
from sagemaker_local_account.aws.events import authorization as events
from sagemaker_local_account.aws.events import resources as events_resources
from sagemaker_local_account.aws.fsx import authorization as fsx
from sagemaker_local_account.aws.fsx import resources as fsx_resources
from sagemaker_local_account.aws.iam import authorization as iam
from sagemaker_local_account.aws.iam import resources as iam_resources
from sagemaker_local_account.aws.kms import authorization as kms
from sagemaker_local_account.aws.kms import resources as kms_resources
from sagemaker_local_account.aws.logs import authorization as logs
from sagemaker_local_account.aws.logs import resources as logs_resources
from sagemaker_local_account.aws.resource_types import ResourceType, ServiceResources
from sagemaker_local_account.aws.s3 import authorization as s3
from sagemaker_local_account.aws.s3 import resources as s3_resources
from sagemaker_local_account.aws.sagemaker import authorization as sagemaker
from sagemaker_local_account.aws.sagemaker import resources as sagemaker_resources
from sagemaker_local_account.aws.scheduler import authorization as scheduler
from sagemaker_local_account.aws.scheduler import resources as scheduler_resources
from sagemaker_local_account.aws.secretsmanager import authorization as secretsmanager
from sagemaker_local_account.aws.secretsmanager import resources as secretsmanager_resources
from sagemaker_local_account.aws.sns import authorization as sns
from sagemaker_local_account.aws.sns import resources as sns_resources
from sagemaker_local_account.aws.sqs import authorization as sqs
from sagemaker_local_account.aws.sqs import resources as sqs_resources
from sagemaker_local_account.aws.ssm import authorization as ssm
from sagemaker_local_account.aws.ssm import resources as ssm_resources
from sagemaker_local_account.aws.stepfunctions import authorization as stepfunctions
from sagemaker_local_account.aws.stepfunctions import resources as stepfunctions_resources
from sagemaker_local_account.aws.sts import authorization as sts
from sagemaker_local_account.iam.service_authorization import ServiceAuthorization


@dataclass(frozen=True)
class Service:
    """A service.

    Args:
        authorization: what its requests are authorized by; None: each is evaluated without a resource.
        resources: its resource types; None without one.
    """

    authorization: ServiceAuthorization | None = None
    resources: ServiceResources | None = None


# By signing names.
SERVICES = {
    "batch": Service(batch.AUTHORIZATION, batch_resources.RESOURCES),
    "cloudcontrolapi": Service(cloudformation.OF_CLOUD_CONTROL),
    "cloudformation": Service(cloudformation.AUTHORIZATION, cloudformation_resources.RESOURCES),
    "codebuild": Service(codebuild.AUTHORIZATION, codebuild_resources.RESOURCES),
    "dynamodb": Service(dynamodb.AUTHORIZATION, dynamodb_resources.RESOURCES),
    "ec2": Service(ec2.AUTHORIZATION, ec2_resources.RESOURCES),
    "ecr": Service(ecr.AUTHORIZATION, ecr_resources.RESOURCES),
    "elasticfilesystem": Service(resources=efs_resources.RESOURCES),
    "events": Service(events.AUTHORIZATION, events_resources.RESOURCES),
    "fsx": Service(fsx.AUTHORIZATION, fsx_resources.RESOURCES),
    "iam": Service(iam.AUTHORIZATION, iam_resources.RESOURCES),
    "kms": Service(kms.AUTHORIZATION, kms_resources.RESOURCES),
    "lambda": Service(awslambda.AUTHORIZATION, awslambda_resources.RESOURCES),
    "logs": Service(logs.AUTHORIZATION, logs_resources.RESOURCES),
    "monitoring": Service(cloudwatch.AUTHORIZATION, cloudwatch_resources.RESOURCES),
    "s3": Service(s3.AUTHORIZATION, s3_resources.RESOURCES),
    "sagemaker": Service(sagemaker.AUTHORIZATION, sagemaker_resources.RESOURCES),
    "scheduler": Service(scheduler.AUTHORIZATION, scheduler_resources.RESOURCES),
    "secretsmanager": Service(secretsmanager.AUTHORIZATION, secretsmanager_resources.RESOURCES),
    "sns": Service(sns.AUTHORIZATION, sns_resources.RESOURCES),
    "sqs": Service(sqs.AUTHORIZATION, sqs_resources.RESOURCES),
    "ssm": Service(ssm.AUTHORIZATION, ssm_resources.RESOURCES),
    "states": Service(stepfunctions.AUTHORIZATION, stepfunctions_resources.RESOURCES),
    "sts": Service(sts.AUTHORIZATION),
}
AUTHORIZATIONS = {name: it.authorization for name, it in SERVICES.items() if it.authorization is not None}
RESOURCES = [it.resources for it in SERVICES.values() if it.resources is not None]
RESOURCE_TYPES: dict[str, ResourceType] = {name: it for service in RESOURCES for name, it in service.types.items()}
