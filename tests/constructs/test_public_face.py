import cdk_sagemaker_training


def test_the_public_names_are_these() -> None:
    assert sorted(cdk_sagemaker_training.__all__) == [
        "Advice",
        "CompiledJob",
        "Compiler",
        "DataParallelJob",
        "Debugger",
        "DebuggerRule",
        "EfsChannel",
        "Experiment",
        "FsxLustreChannel",
        "HeterogeneousJob",
        "InstanceGroup",
        "InstancePreference",
        "JobRequest",
        "LustreFileSystem",
        "Mlflow",
        "ModelParallelJob",
        "Mpi",
        "MultiWorkerMirrored",
        "NativeParallelism",
        "Neuron",
        "ParameterServer",
        "PrivateRegistry",
        "Profiler",
        "PyTorchDdp",
        "PyTorchXla",
        "S3AccessPoint",
        "S3Channel",
        "S3Prefix",
        "SmDdp",
        "SmpV1",
        "SmpV2",
        "Spot",
        "SuggestedBatchSize",
        "TensorBoard",
        "TensorFlowXla",
        "TorchCompile",
        "TorchXla",
        "Torchrun",
        "TrainingBucket",
        "TrainingCompiler",
        "TrainingImage",
        "TrainingJob",
        "TrainingNetwork",
        "TrainingProps",
        "TrainingRole",
        "TrainingTask",
        "TrainingWorkflow",
        "UltraServers",
        "WarmPool",
        "efa_environment",
        "rescaled_learning_rate",
        "suggested_batch_sizes",
        "training_code_path",
        "unlisted",
    ]


def test_each_public_name_has_a_docstring_that_says_what_it_is() -> None:
    for name in cdk_sagemaker_training.__all__:
        doc = getattr(cdk_sagemaker_training, name).__doc__
        assert doc, name
        assert not doc.startswith(f"{name}("), name
