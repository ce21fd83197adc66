"""A heterogeneous job by version 3 of SageMaker's Python SDK: `sdk_v3.py IMAGE ROLE SOURCE TARGET`."""

import logging
import sys

from sagemaker.core.helper.session_helper import Session
from sagemaker.core.s3 import S3Downloader
from sagemaker.core.shapes import InstanceGroup
from sagemaker.core.training.configs import Compute, SourceCode
from sagemaker.train import ModelTrainer

logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stdout)
image, role, source, target = sys.argv[1:]
session = Session()
trainer = ModelTrainer(
    training_image=image,
    role=role,
    base_job_name="sdk-v3",
    source_code=SourceCode(source_dir=source, entry_script="train.py"),
    compute=Compute(
        instance_groups=[
            InstanceGroup(instance_group_name="data_group", instance_type="ml.m5.large", instance_count=1),
            InstanceGroup(instance_group_name="dnn_group", instance_type="ml.m5.xlarge", instance_count=2),
        ]
    ),
    hyperparameters={"epochs": 2},
    sagemaker_session=session,
)
trainer.train(wait=True, logs=True)
model = trainer._latest_training_job.model_artifacts.s3_model_artifacts
print(model)
S3Downloader.download(model, target, sagemaker_session=session)
