"""Records what AWS's SDK sends for a tuning job, without sending it, in an environment of version 2 (README.md).

Writes `tuning.json`: ``request``, the CreateHyperParameterTuningJob request.
"""

import json
from importlib.metadata import version
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock


def request() -> dict[str, Any]:
    import sagemaker
    from sagemaker.tuner import CategoricalParameter, ContinuousParameter, HyperparameterTuner, IntegerParameter

    client = MagicMock()
    boto = MagicMock(region_name="us-east-1")
    session = sagemaker.Session(boto_session=boto, sagemaker_client=client, default_bucket="bucket")
    estimator = sagemaker.estimator.Estimator(
        image_uri="123456789012.dkr.ecr.us-east-1.amazonaws.com/images:1",
        role="arn:aws:iam::123456789012:role/Training",
        instance_count=1,
        instance_type="ml.g5.xlarge",
        output_path="s3://bucket/models/",
        hyperparameters={"epochs": 3},
        max_run=3_600,
        sagemaker_session=session,
    )
    tuner = HyperparameterTuner(
        estimator,
        "loss",
        {
            "learning-rate": ContinuousParameter(0.001, 0.1, "Logarithmic"),
            "layers": IntegerParameter(2, 8),
            # What the SDK itself makes of the values of its frameworks.
            "optimizer": CategoricalParameter([json.dumps(value) for value in ("adam", "sgd")]),
        },
        metric_definitions=[{"Name": "loss", "Regex": "loss=([0-9.]+)"}],
        objective_type="Minimize",
        max_jobs=20,
        max_parallel_jobs=2,
    )
    tuner.fit(wait=False)
    [call] = client.create_hyper_parameter_tuning_job.mock_calls
    return {name: value for name, value in call.kwargs.items() if name != "HyperParameterTuningJobName"}  # has a time


if __name__ == "__main__":
    recorded = {"sdk": f"sagemaker {version('sagemaker')}", "request": request()}
    Path(__file__).with_name("tuning.json").write_text(
        json.dumps(recorded, indent=1, sort_keys=True, default=str) + "\n"
    )
