from typing import Any

import aws_cdk as cdk
import pytest
from aws_cdk import aws_s3 as s3
from stacks import message_of, reads

from cdk_sagemaker_training import (
    CompiledJob,
    Compiler,
    DataParallelJob,
    HeterogeneousJob,
    InstanceGroup,
    JobRequest,
    Neuron,
    PyTorchXla,
    S3Prefix,
    TensorFlowXla,
    TorchCompile,
    Torchrun,
    TorchXla,
)

GPU = InstanceGroup("ml.g5.12xlarge")
CPU = InstanceGroup("ml.m5.xlarge")
TRAINIUM = InstanceGroup("ml.trn1.32xlarge", 2)
INDUCTOR = {
    "TRAINING_COMPILER": "inductor",
    "TRAINING_COMPILER_MODE": "default",
    "TRAINING_COMPILER_DYNAMIC": "false",
    "TORCHINDUCTOR_CACHE_DIR": "/opt/ml/checkpoints/compiler-cache",
}


def cache() -> S3Prefix:
    return S3Prefix(s3.Bucket.from_bucket_name(cdk.Stack(), "Bucket", "bucket"), "neuron-cache/")


def request_of(job: Any) -> JobRequest:
    [request] = job.requests()
    return request  # type: ignore[no-any-return]


def advice_of(job: Any) -> list[str]:
    return [advice.id.removeprefix("cdk-sagemaker-training:") for advice in request_of(job).advice]


def test_a_job_on_gpus_is_compiled_by_pytorch_unless_said_otherwise() -> None:
    assert request_of(CompiledJob(GPU)) == JobRequest(
        resource_config={"InstanceType": "ml.g5.12xlarge", "InstanceCount": 1},
        environment=INDUCTOR,
        kept=("/opt/ml/checkpoints/compiler-cache",),
    )


def test_debugging_logs_recompilations_and_writes_the_compilers_trace_into_the_jobs_output() -> None:
    """PyTorch makes the folder of TORCH_TRACE, with a file for each process: LazyTraceHandler of torch/_logging/_internal.py."""
    environment = request_of(CompiledJob(GPU, compiler=TorchCompile(debug=True))).environment
    debug = {"TORCH_LOGS": "graph_breaks,recompiles", "TORCH_TRACE": "/opt/ml/output/data/compiler"}
    assert environment == {**INDUCTOR, **debug}


def test_a_data_parallel_job_takes_a_compiler_too() -> None:
    job = DataParallelJob(GPU, launcher=Torchrun(), compiler=TorchCompile(mode="max-autotune", dynamic=True))
    assert request_of(job).environment == {
        **INDUCTOR,
        "TRAINING_COMPILER_MODE": "max-autotune",
        "TRAINING_COMPILER_DYNAMIC": "true",
    }
    assert request_of(job).hyperparameters == {"sagemaker_torch_distributed_enabled": "true"}


def test_a_data_parallel_job_without_a_compiler_says_nothing_of_one() -> None:
    assert request_of(DataParallelJob(GPU)).environment == {}


def test_the_group_that_trains_of_a_heterogeneous_job_is_compiled() -> None:
    job = HeterogeneousJob(groups={"data": CPU}, train=CompiledJob(GPU, launcher=Torchrun()), train_group="dnn")
    assert request_of(job).environment == INDUCTOR


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: TorchCompile(mode="fast"),  # type: ignore[arg-type]
            "mode must be one of 'default', 'reduce-overhead', 'max-autotune', 'max-autotune-no-cudagraphs' ... "
            "got 'fast'",
        ),
        (
            lambda: TorchCompile(dynamic="no"),  # type: ignore[arg-type]
            "dynamic must be True or False ... got 'no'",
        ),
        (
            lambda: TorchCompile(cache_directory="cache"),
            "cache_directory must be an absolute path ... got 'cache'",
        ),
        (
            lambda: TensorFlowXla(auto_clustering=2),  # type: ignore[arg-type]
            "auto_clustering must be True or False ... got 2",
        ),
        (
            lambda: CompiledJob(GPU, compiler="inductor"),  # type: ignore[arg-type]
            "compiler must be a compiler ... got 'inductor'",
        ),
        (
            lambda: DataParallelJob(GPU, compiler="xla"),  # type: ignore[arg-type]
            "compiler must be a compiler ... got 'xla'",
        ),
        (
            lambda: Neuron(cache="s3://bucket/neuron-cache/"),  # type: ignore[arg-type]
            "cache must be an S3Prefix ... got 's3://bucket/neuron-cache/'",
        ),
        (
            lambda: Neuron(cache=cache(), compile_ahead=False, trial={"steps": 10}),
            "trial must be left out without compile_ahead, whose job it configures ... got {'steps': 10}",
        ),
    ],
)
def test_a_compiler_that_is_none_is_refused(make: Any, message: str) -> None:
    assert reads(message_of(make), message)


@pytest.mark.parametrize("compiler", [TorchCompile(), TorchXla(), TensorFlowXla()], ids=repr)
def test_compilers_for_gpus_are_refused_on_trainium(compiler: Compiler) -> None:
    assert reads(
        message_of(lambda: CompiledJob(TRAINIUM, compiler=compiler)),
        f"compiler must be Neuron(...) on Trainium ... got {type(compiler).__name__} with 'ml.trn1.32xlarge'",
    )


@pytest.mark.parametrize("group", [GPU, CPU], ids=["gpu", "cpu"])
def test_neuron_is_refused_without_trainium(group: InstanceGroup) -> None:
    assert reads(
        message_of(lambda: CompiledJob(group, compiler=Neuron(cache=cache()), launcher=Torchrun())),
        f"instance_type must be one of Trainium for compiler=Neuron(...) ... got {group.instance_type!r}",
    )


def test_neuron_is_refused_without_its_launcher() -> None:
    assert reads(
        message_of(lambda: CompiledJob(TRAINIUM, compiler=Neuron(cache=cache()))),
        "launcher must be Torchrun() for compiler=Neuron ... got none",
    )


def test_neuron_compiles_ahead_in_a_job_of_its_own_without_checkpoints() -> None:
    place = cache()
    job = CompiledJob(TRAINIUM, compiler=Neuron(cache=place, trial={"steps": 10}), launcher=Torchrun())
    ahead, training = job.requests()
    assert training.environment == {"NEURON_COMPILE_CACHE_URL": "s3://bucket/neuron-cache/"}
    assert ahead.environment == {**training.environment, "RUN_NEURON_PARALLEL_COMPILE": "1"}
    assert (ahead.name_suffix, ahead.overrides, ahead.checkpoints) == ("compile", {"steps": 10}, False)
    assert (training.name_suffix, training.overrides, training.checkpoints) == ("", {}, True)
    assert ahead.storage == training.storage == (place,)
    assert ahead.resource_config == training.resource_config


def test_neuron_compiles_while_it_trains_where_told_to() -> None:
    job = CompiledJob(TRAINIUM, compiler=Neuron(cache=cache(), compile_ahead=False), launcher=Torchrun())
    assert request_of(job).environment == {"NEURON_COMPILE_CACHE_URL": "s3://bucket/neuron-cache/"}


def test_xla_on_gpus_is_told_how_many_processes_to_start_where_no_launcher_does() -> None:
    assert request_of(CompiledJob(GPU, compiler=TorchXla())).environment == {
        "TRAINING_COMPILER": "xla",
        "PJRT_DEVICE": "CUDA",
        "GPU_NUM_DEVICES": "4",
    }
    assert request_of(CompiledJob(GPU, compiler=TorchXla(), launcher=Torchrun())).environment == {
        "TRAINING_COMPILER": "xla",
        "PJRT_DEVICE": "CUDA",
    }


def test_xla_without_gpus_trains_in_one_process() -> None:
    assert request_of(CompiledJob(CPU, compiler=TorchXla())).environment == {
        "TRAINING_COMPILER": "xla",
        "PJRT_DEVICE": "CPU",
    }


@pytest.mark.parametrize(
    ("count", "launcher", "got"), [(2, None, "2 x 1"), (1, Torchrun(processes_per_host=2), "1 x 2")]
)
def test_xla_without_gpus_is_refused_where_several_processes_would_train(
    count: int, launcher: Torchrun | None, got: str
) -> None:
    group = InstanceGroup("ml.m5.xlarge", count)
    assert reads(
        message_of(lambda: CompiledJob(group, compiler=TorchXla(), launcher=launcher)),
        "group must be one machine with one process for compiler=TorchXla() without GPUs, whose XLA has no "
        f"collectives ... got {got} on 'ml.m5.xlarge'",
    )


def test_tensorflow_is_not_started_by_torchrun() -> None:
    assert reads(
        message_of(lambda: CompiledJob(GPU, compiler=TensorFlowXla(), launcher=Torchrun())),
        "launcher must be one for TensorFlow ... got Torchrun() with compiler=TensorFlowXla()",
    )


def test_tensorflow_clusters_by_itself_where_told_to() -> None:
    assert request_of(CompiledJob(GPU, compiler=TensorFlowXla(auto_clustering=True))).environment == {
        "TRAINING_COMPILER": "xla",
        "TF_XLA_FLAGS": "--tf_xla_auto_jit=2",
    }


@pytest.mark.parametrize("compiler", [TorchCompile(), TensorFlowXla(), None], ids=repr)
def test_the_training_compilers_launcher_is_refused_without_it(compiler: Compiler | None) -> None:
    message = message_of(lambda: DataParallelJob(GPU, compiler=compiler, launcher=PyTorchXla()))
    assert message.startswith("launcher must be one that the job's containers have")
    assert message.endswith(f"got compiler={compiler!r}")


@pytest.mark.parametrize(
    ("instance_type", "count", "ids"),
    [
        ("ml.g5.xlarge", 1, []),
        ("ml.g5.12xlarge", 2, ["scale-up-first"]),
        ("ml.g5.48xlarge", 2, []),
        ("ml.p4d.24xlarge", 8, []),
        ("ml.m5.xlarge", 8, []),
        ("ml.g5.8xlarge", 2, ["scale-up-first"]),
        ("ml.g5.xlarge", 2, ["scale-up-first", "no-efa"]),
        ("ml.p3.16xlarge", 2, ["no-efa"]),
        ("ml.p6e-gb200.36xlarge", 2, []),
    ],
)
def test_machines_that_make_a_job_slower_are_advised_against(instance_type: str, count: int, ids: list[str]) -> None:
    assert advice_of(CompiledJob(InstanceGroup(instance_type, count))) == ids


def test_advice_names_the_machine_to_take_instead() -> None:
    advice = request_of(CompiledJob(InstanceGroup("ml.p3.2xlarge", 8))).advice
    assert ["one ml.p3.16xlarge has 8" in advice[0].text, "like ml.p4d.24xlarge" in advice[1].text] == [True, True]


def test_what_is_no_longer_developed_is_advised_against() -> None:
    assert advice_of(CompiledJob(GPU, compiler=TorchXla())) == ["xla-on-gpus"]
    neuron = Neuron(cache=cache(), compile_ahead=False)
    assert advice_of(CompiledJob(TRAINIUM, compiler=neuron, launcher=Torchrun())) == ["neuron-with-xla"]


def test_a_type_that_a_parameter_decides_is_passed_by() -> None:
    stack = cdk.Stack()
    group = InstanceGroup(
        cdk.CfnParameter(stack, "Type").value_as_string,
        cdk.CfnParameter(stack, "Count", type="Number").value_as_number,  # type: ignore[arg-type]
    )
    assert advice_of(CompiledJob(group)) == []
    assert request_of(CompiledJob(group, compiler=TorchXla())).environment["PJRT_DEVICE"] == "CUDA"
