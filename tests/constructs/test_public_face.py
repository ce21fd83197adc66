import cdk_sagemaker_training


def test_the_public_names_are_these() -> None:
    assert sorted(cdk_sagemaker_training.__all__) == [
        "Advice",
        "CompiledJob",
        "Compiler",
        "DataParallelJob",
        "HeterogeneousJob",
        "InstanceGroup",
        "JobRequest",
        "LustreFileSystem",
        "Neuron",
        "PyTorchXla",
        "S3Channel",
        "S3Prefix",
        "Spot",
        "SuggestedBatchSize",
        "TensorFlowXla",
        "TorchCompile",
        "TorchXla",
        "Torchrun",
        "TrainingCompiler",
        "TrainingImage",
        "TrainingJob",
        "TrainingNetwork",
        "TrainingRole",
        "TrainingTask",
        "TrainingWorkflow",
        "WarmPool",
        "efa_environment",
        "rescaled_learning_rate",
        "suggested_batch_sizes",
        "training_code_path",
    ]


def test_each_public_name_has_a_docstring_that_says_what_it_is() -> None:
    for name in cdk_sagemaker_training.__all__:
        doc = getattr(cdk_sagemaker_training, name).__doc__
        assert doc, name
        assert not doc.startswith(f"{name}("), name
