import dataclasses
import enum
import inspect
import re
from collections.abc import Iterator
from typing import Any

import pytest
from docstring_parser import DocstringStyle, parse

import cdk_sagemaker_training


def test_the_public_names_are_these() -> None:
    assert sorted(cdk_sagemaker_training.__all__) == [
        "Advice",
        "Alternative",
        "Approval",
        "ArtifactOf",
        "Attempt",
        "Budget",
        "Cause",
        "ChoiceField",
        "CompiledJob",
        "Compiler",
        "DataParallelJob",
        "Debugger",
        "DebuggerRule",
        "EfsChannel",
        "Experiment",
        "Feature",
        "FsxLustreChannel",
        "Gate",
        "Grid",
        "HeterogeneousJob",
        "ITrainingQueue",
        "ITrainingWorkflow",
        "InstanceGroup",
        "InstancePreference",
        "JobRequest",
        "Launcher",
        "LustreFileSystem",
        "MetricLimit",
        "Mlflow",
        "Model",
        "ModelParallelJob",
        "Mpi",
        "MultiWorkerMirrored",
        "NativeParallelism",
        "Neuron",
        "NumberField",
        "Objective",
        "ParallelSteps",
        "Parallelism",
        "ParameterServer",
        "Plateau",
        "PrivateRegistry",
        "Profiler",
        "PyTorchDdp",
        "PyTorchXla",
        "QueueShare",
        "QuotaShare",
        "Ray",
        "RegisterModel",
        "Retry",
        "Rows",
        "RowsFile",
        "S3AccessPoint",
        "S3Channel",
        "S3Prefix",
        "Seam",
        "Silence",
        "SmDdp",
        "SmpV1",
        "SmpV2",
        "Spot",
        "SuggestedBatchSize",
        "TensorBoard",
        "TensorFlowXla",
        "TextField",
        "TorchCompile",
        "TorchXla",
        "Torchrun",
        "TrainingBucket",
        "TrainingCode",
        "TrainingCompiler",
        "TrainingDashboard",
        "TrainingFunctions",
        "TrainingImage",
        "TrainingJob",
        "TrainingNetwork",
        "TrainingPipeline",
        "TrainingProps",
        "TrainingQueue",
        "TrainingRole",
        "TrainingSweep",
        "TrainingTask",
        "TrainingWorkflow",
        "UltraServers",
        "WarmPool",
        "default_retries",
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


def documented_names(docstring: str | None) -> set[str]:
    """The names under Args and Attributes of a docstring in Google's style."""
    parsed = parse(docstring or "", style=DocstringStyle.GOOGLE)
    return {parameter.arg_name.lstrip("*") for parameter in parsed.params if parameter.description}


def docstring_of_constructor(cls: type) -> str | None:
    """The one that editors show: that of `__init__`, which constructs inherit from aws_cdk and dataclasses lack."""
    return cls.__init__.__doc__ or (cls.__doc__ if dataclasses.is_dataclass(cls) else None)


def parameters(function: Any) -> list[str]:
    return [name for name in inspect.signature(function).parameters if name not in ("self", "cls")]


def own_members(cls: type) -> Iterator[tuple[str, Any]]:
    """The public methods and properties that this library defines, not those of aws_cdk's classes below."""
    for owner in cls.__mro__:
        if owner.__module__.startswith("cdk_sagemaker_training"):
            for name, member in vars(owner).items():
                if not name.startswith("_") and (inspect.isroutine(member) or isinstance(member, property)):
                    yield name, member


def undocumented(name: str) -> list[str]:
    """The parameters and members of a public name that its docstrings leave out."""
    public = getattr(cdk_sagemaker_training, name)
    if not inspect.isclass(public):
        return [one for one in parameters(public) if one not in documented_names(public.__doc__)]
    missing = []
    # CDK names an interface like `IBucket`; what implements it is constructed.
    interface = getattr(public, "_is_protocol", False) or re.match("I[A-Z][a-z]", name)
    constructed = not interface and not issubclass(public, enum.Enum)
    if constructed and public.__init__ is not object.__init__:
        documented = documented_names(docstring_of_constructor(public))
        missing += [f"__init__({one})" for one in parameters(public.__init__) if one not in documented]
    for member_name, member in own_members(public):
        if not member.__doc__:
            missing.append(member_name)
        elif not isinstance(member, property):
            function = getattr(public, member_name)
            # An override takes what the method takes that it overrides.
            overridden = [vars(owner)[member_name] for owner in public.__mro__ if member_name in vars(owner)]
            documented = [name for one in overridden for name in documented_names(one.__doc__)]
            missing += [f"{member_name}({one})" for one in parameters(function) if one not in documented]
    return missing


# Its props are documented one by one, where they are declared (test_props.py).
TYPED_DICT = "TrainingProps"


@pytest.mark.parametrize("name", sorted({*cdk_sagemaker_training.__all__} - {TYPED_DICT}))
def test_an_editor_shows_the_documentation_of_each_parameter_where_it_is_typed(name: str) -> None:
    assert undocumented(name) == []
