"""A heterogeneous job by version 2 of SageMaker's Python SDK: `sdk_v2.py IMAGE ROLE SOURCE TARGET BUCKET`."""

import sys

from sagemaker import Session
from sagemaker.instance_group import InstanceGroup
from sagemaker.pytorch import PyTorch
from sagemaker.s3 import S3Downloader

image, role, source, target, bucket = sys.argv[1:]
session = Session(default_bucket=bucket)
estimator = PyTorch(
    image_uri=image,
    role=role,
    base_job_name="sdk-v2",
    entry_point="train.py",
    source_dir=source,
    instance_groups=[InstanceGroup("data_group", "ml.m5.large", 1), InstanceGroup("dnn_group", "ml.m5.xlarge", 2)],
    hyperparameters={"epochs": 2},
    sagemaker_session=session,
)
estimator.fit(wait=True, logs="All")
print(estimator.model_data)
S3Downloader.download(estimator.model_data, target, sagemaker_session=session)
