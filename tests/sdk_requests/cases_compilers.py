"""Jobs that are compiled, as AWS's SDK makes them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

ROLE = "arn:aws:iam::123456789012:role/Training"
NEURON_IMAGE = (
    "763104351884.dkr.ecr.us-east-1.amazonaws.com/pytorch-training-neuronx:2.9.0-neuronx-py312-sdk2.29.1-ubuntu24.04"
)
XLA_IMAGE = "123456789012.dkr.ecr.us-east-1.amazonaws.com/training:xla"


def common(session: Any, instance_type: str = "ml.p3.2xlarge", instance_count: int = 1) -> dict[str, Any]:
    return {
        "role": ROLE,
        "entry_point": "train.py",
        "instance_type": instance_type,
        "instance_count": instance_count,
        "hyperparameters": {"batch_size": 64, "learning_rate": 0.0001, "model": "gpt2"},
        "output_path": "s3://bucket/models/",
        "sagemaker_session": session,
        "disable_profiler": True,
        "debugger_hook_config": False,
        "source_dir": "s3://bucket/job/source/sourcedir.tar.gz",
    }


def pytorch(version: str = "1.13.1", python: str = "py39", **props: Any) -> Callable[[Any], Any]:
    def make(session: Any) -> Any:
        from sagemaker.pytorch import PyTorch, TrainingCompilerConfig

        own = {key: props[key] for key in ("instance_type", "instance_count") if key in props}
        other = {key: value for key, value in props.items() if key not in own}
        config = TrainingCompilerConfig(debug=other.pop("debug", False))
        arguments = {
            **common(session, **own),
            "framework_version": version,
            "py_version": python,
            "compiler_config": config,
            **other,
        }
        return PyTorch(**_without_absent(arguments))

    return make


def hugging_face(
    transformers: str, python: str, pytorch: str | None = None, tensorflow: str | None = None, **props: Any
) -> Callable[[Any], Any]:
    def make(session: Any) -> Any:
        from sagemaker.huggingface import HuggingFace, TrainingCompilerConfig

        arguments = {
            **common(session),
            "transformers_version": transformers,
            "pytorch_version": pytorch,
            "tensorflow_version": tensorflow,
            "py_version": python,
            "compiler_config": TrainingCompilerConfig(),
            **props,
        }
        return HuggingFace(**_without_absent(arguments))

    return make


def tensorflow(version: str, python: str = "py39", **props: Any) -> Callable[[Any], Any]:
    def make(session: Any) -> Any:
        from sagemaker.tensorflow import TensorFlow, TrainingCompilerConfig

        arguments = {
            **common(session),
            "framework_version": version,
            "py_version": python,
            "compiler_config": TrainingCompilerConfig(),
            **props,
        }
        return TensorFlow(**_without_absent(arguments))

    return make


def on_groups(session: Any) -> Any:
    from sagemaker.instance_group import InstanceGroup

    groups = [InstanceGroup("dnn_group", "ml.p3.2xlarge", 1), InstanceGroup("data_group", "ml.c5.xlarge", 1)]
    return pytorch(instance_type=None, instance_count=None, instance_groups=groups)(session)


def in_china(session: Any) -> Any:
    session._region_name = "cn-north-1"
    return pytorch()(session)


def _without_absent(arguments: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in arguments.items() if value is not None}


XLA = {"pytorchxla": {"enabled": True}}
TORCHRUN = {"torch_distributed": {"enabled": True}}
MPI = {"mpi": {"enabled": True, "processes_per_host": 1}}
SMDDP = {"smdistributed": {"dataparallel": {"enabled": True}}}
# What `compiler_config` is without a compiler.
PLAIN = {"compiler_config": None}

CASES: dict[str, Callable[[Any], Any]] = {
    # Training Compiler
    "smtc_pytorch_1.13.1": pytorch(),
    "smtc_pytorch_1.12.0": pytorch("1.12.0", "py38"),
    "smtc_pytorch_1.13": pytorch("1.13"),
    "smtc_pytorch_debug": pytorch(debug=True),
    "smtc_pytorch_profiler": pytorch(disable_profiler=None),
    "smtc_pytorchxla": pytorch(instance_type="ml.p4d.24xlarge", instance_count=2, distribution=XLA),
    "smtc_hugging_face_pytorch_1.11.0": hugging_face("4.21.1", "py38", pytorch="1.11.0"),
    "smtc_hugging_face_pytorch_1.11.0_xla": hugging_face(
        "4.21.1", "py38", pytorch="1.11.0", instance_type="ml.p3dn.24xlarge", distribution=XLA
    ),
    "smtc_hugging_face_pytorch_1.10.2": hugging_face("4.17.0", "py38", pytorch="1.10.2"),
    "smtc_hugging_face_pytorch_1.9.0": hugging_face("4.11.0", "py38", pytorch="1.9.0"),
    "smtc_hugging_face_tensorflow_2.6.3": hugging_face("4.17.0", "py38", tensorflow="2.6.3"),
    "smtc_hugging_face_tensorflow_2.5.1": hugging_face("4.11.0", "py37", tensorflow="2.5.1"),
    "smtc_tensorflow_2.11": tensorflow("2.11"),
    "smtc_tensorflow_2.10": tensorflow("2.10"),
    "smtc_tensorflow_2.9": tensorflow("2.9"),
    "smtc_refused_tensorflow_2.9.1": tensorflow("2.9.1"),
    "smtc_tensorflow_own_image": tensorflow("2.11", image_uri=XLA_IMAGE),
    # Training Compiler, refused
    "smtc_refused_family_p5": pytorch(instance_type="ml.p5.48xlarge"),
    "smtc_refused_family_p4de": pytorch(instance_type="ml.p4de.24xlarge"),
    "smtc_refused_family_g6": pytorch(instance_type="ml.g6.xlarge"),
    "smtc_refused_family_c5": pytorch(instance_type="ml.c5.xlarge"),
    "smtc_refused_groups": on_groups,
    "smtc_refused_region": in_china,
    "smtc_refused_smddp": pytorch(instance_type="ml.p4d.24xlarge", distribution=SMDDP),
    "smtc_refused_mpi": pytorch(instance_type="ml.p4d.24xlarge", distribution=MPI),
    "smtc_refused_torch_distributed": pytorch(instance_type="ml.p4d.24xlarge", distribution=TORCHRUN),
    "smtc_refused_image": pytorch(image_uri=XLA_IMAGE),
    "smtc_refused_image_hugging_face": hugging_face("4.21.1", "py38", pytorch="1.11.0", image_uri=XLA_IMAGE),
    "smtc_refused_pytorch_1.11": pytorch("1.11.0", "py38"),
    "smtc_refused_pytorch_2.0": pytorch("2.0.0", "py310"),
    "smtc_refused_tensorflow_2.8": tensorflow("2.8.0"),
    "smtc_tensorflow_2.12": tensorflow("2.12.0", "py310"),
    "smtc_refused_tensorflow_mirrored": tensorflow(
        "2.11", distribution={"multi_worker_mirrored_strategy": {"enabled": True}}
    ),
    "smtc_tensorflow_xla": tensorflow("2.11", distribution=XLA),
    "smtc_refused_hugging_face_old_xla": hugging_face("4.17.0", "py38", pytorch="1.10.2", distribution=XLA),
    "pytorchxla_refused_without_compiler": pytorch(instance_type="ml.p4d.24xlarge", distribution=XLA, **PLAIN),
    # Trainium
    "trainium": pytorch(
        instance_type="ml.trn1.32xlarge",
        instance_count=2,
        version=None,
        python=None,
        image_uri=NEURON_IMAGE,
        distribution=TORCHRUN,
        environment={"NEURON_COMPILE_CACHE_URL": "s3://bucket/neuron-cache/"},
        **PLAIN,
    ),
    "trainium_compile_ahead": pytorch(
        instance_type="ml.trn1.32xlarge",
        instance_count=2,
        version=None,
        python=None,
        image_uri=NEURON_IMAGE,
        distribution=TORCHRUN,
        environment={"NEURON_COMPILE_CACHE_URL": "s3://bucket/neuron-cache/", "RUN_NEURON_PARALLEL_COMPILE": "1"},
        **PLAIN,
    ),
    "trainium_refused_mpi": pytorch(
        instance_type="ml.trn1.32xlarge", image_uri=NEURON_IMAGE, distribution=MPI, **PLAIN
    ),
    # The open XLA, which the SDK knows only as a script on an image of one's own
    "xla": pytorch(
        version=None,
        python=None,
        instance_type="ml.p4d.24xlarge",
        instance_count=2,
        image_uri=XLA_IMAGE,
        distribution=TORCHRUN,
        environment={"TRAINING_COMPILER": "xla", "PJRT_DEVICE": "CUDA"},
        **PLAIN,
    ),
    "xla_tensorflow": tensorflow(
        version=None,
        python=None,
        image_uri=XLA_IMAGE,
        environment={"TRAINING_COMPILER": "xla"},
        **PLAIN,
    ),
}
