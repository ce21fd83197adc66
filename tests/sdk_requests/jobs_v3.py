"""Jobs that may run on several instance types, by version 3 of SageMaker's Python SDK: `jobs_v3.py CASE`."""

from __future__ import annotations

import sys
from typing import Any

P5, P4D, G5 = "ml.p5.48xlarge", "ml.p4d.24xlarge", "ml.g5.12xlarge"
PLAN = "arn:aws:sagemaker:us-east-1:123456789012:training-plan/spring"
# The arguments of Compute, by the name of the case.
CASES: dict[str, dict[str, Any]] = {
    "preferences_one_count": {
        "instance_count": 2,
        "instance_preferences": [{"instance_type": P5}, {"instance_type": P4D}],
    },
    "preferences_own_counts": {
        "instance_preferences": [
            {"instance_type": P5, "instance_count": 1},
            {"instance_type": G5, "instance_count": 2},
        ]
    },
    "preferences_own_plan": {
        "instance_preferences": [
            {"instance_type": P5, "instance_count": 1, "training_plan_arns": [PLAN]},
            {"instance_type": G5, "instance_count": 2},
        ]
    },
    "preferences_refused_twice": {
        "instance_count": 2,
        "instance_preferences": [{"instance_type": P5}, {"instance_type": P4D}, {"instance_type": P5}],
    },
    "preferences_refused_one_without_count": {
        "instance_preferences": [{"instance_type": P5, "instance_count": 1}, {"instance_type": P4D}]
    },
    "preferences_refused_both_counts": {
        "instance_count": 2,
        "instance_preferences": [
            {"instance_type": P5, "instance_count": 1},
            {"instance_type": P4D, "instance_count": 2},
        ],
    },
    "preferences_refused_spot": {
        "instance_count": 2,
        "enable_managed_spot_training": True,
        "instance_preferences": [{"instance_type": P5}, {"instance_type": P4D}],
    },
}


def train(case: str) -> None:
    from pydantic import ValidationError
    from sagemaker.core.helper.session_helper import Session
    from sagemaker.core.shapes import InstancePreference
    from sagemaker.core.training.configs import Compute, OutputDataConfig, StoppingCondition
    from sagemaker.train import ModelTrainer

    compute = dict(CASES[case])
    compute["instance_preferences"] = [InstancePreference(**one) for one in compute["instance_preferences"]]
    try:
        machines = Compute(volume_size_in_gb=30, **compute)
    except ValidationError as error:
        sys.exit(error.errors()[0]["msg"])
    trainer = ModelTrainer(
        training_image="123456789012.dkr.ecr.us-east-1.amazonaws.com/training:1",
        role="arn:aws:iam::123456789012:role/Training",
        base_job_name="job",
        compute=machines,
        output_data_config=OutputDataConfig(s3_output_path="s3://bucket/models/"),
        stopping_condition=StoppingCondition(max_runtime_in_seconds=86400),
        sagemaker_session=Session(),
    )
    trainer.train(wait=False)


if __name__ == "__main__":
    train(sys.argv[1])
