import json

import aws_cdk as cdk
from aws_cdk.assertions import Annotations, Match
from stacks import UserStack, message_of, reads

from cdk_sagemaker_training import (
    Advice,
    DataParallelJob,
    HeterogeneousJob,
    InstanceGroup,
    ModelParallelJob,
    NativeParallelism,
    TrainingJob,
)

TWO_OF_TWO = InstanceGroup("ml.g7e.12xlarge", 2)  # two GPUs each, with EFA


def advice_of(job: TrainingJob) -> dict[str, str]:
    [request] = job.requests()
    return {advice.id.removeprefix("cdk-sagemaker-training:"): advice.text for advice in request.advice}


def test_the_training_code_reads_every_degree_from_one_variable() -> None:
    [request] = ModelParallelJob(TWO_OF_TWO, NativeParallelism(data_shard=2, tensor=2)).requests()
    assert json.loads(request.environment["TRAINING_PARALLELISM"]) == {
        "data_shard": 2,
        "data_replicate": 1,
        "tensor": 2,
        "pipeline": 1,
        "microbatches": 1,
        "schedule": "1f1b",
        "activation_checkpointing": False,
        "activation_offloading": False,
        "cpu_offload": False,
        "precision": "fp32",
    }


def test_torchrun_starts_a_process_for_each_accelerator() -> None:
    [request] = ModelParallelJob(TWO_OF_TWO, NativeParallelism(data_shard=4)).requests()
    assert request.hyperparameters == {"sagemaker_torch_distributed_enabled": "true"}
    assert request.resource_config == {"InstanceType": "ml.g7e.12xlarge", "InstanceCount": 2}


def test_a_product_that_is_not_the_number_of_accelerators_is_refused_with_every_factor() -> None:
    assert reads(
        message_of(lambda: ModelParallelJob(TWO_OF_TWO, NativeParallelism(data_shard=2, tensor=2, pipeline=2))),
        "parallelism must have degrees that multiply to 4 processes (instance_count 2 x 2 accelerators of "
        "ml.g7e.12xlarge) ... got data_replicate 1 x data_shard 2 x pipeline 2 x tensor 2 = 8",
    )


def test_machines_without_accelerators_have_one_process_each() -> None:
    message = message_of(lambda: ModelParallelJob(InstanceGroup("ml.c5.xlarge", 2), NativeParallelism(data_shard=4)))
    assert "multiply to 2 processes (instance_count 2 x 1 processes_per_host of ml.c5.xlarge)" in message


def test_machines_without_accelerators_can_have_several_processes() -> None:
    job = ModelParallelJob(InstanceGroup("ml.c5.xlarge", 2), NativeParallelism(data_shard=4), processes_per_host=2)
    [request] = job.requests()
    assert request.hyperparameters["sagemaker_mpi_num_of_processes_per_host"] == "2"


def test_each_core_of_trainium_has_a_process() -> None:
    trainium = InstanceGroup("ml.trn1.32xlarge")
    [request] = ModelParallelJob(trainium, NativeParallelism(data_shard=4, tensor=8)).requests()
    assert json.loads(request.environment["TRAINING_PARALLELISM"])["tensor"] == 8
    message = message_of(lambda: ModelParallelJob(trainium, NativeParallelism(data_shard=4, tensor=4)))
    assert "multiply to 32 processes" in message


def test_fewer_microbatches_than_stages_are_refused_with_1f1b_which_pytorch_refuses() -> None:
    assert reads(
        message_of(lambda: NativeParallelism(pipeline=4, microbatches=2)),
        "microbatches must be at least the number of pipeline stages with schedule='1f1b' ... got 2 for 4 stages",
    )


def test_there_are_as_many_microbatches_as_stages_unless_said() -> None:
    variables = NativeParallelism(pipeline=4).environment()
    assert json.loads(variables["TRAINING_PARALLELISM"])["microbatches"] == 4


def test_a_count_that_only_the_deployment_knows_is_not_held_against_the_degrees() -> None:
    count = cdk.CfnParameter(cdk.Stack(), "Count", type="Number").value_as_number
    [request] = ModelParallelJob(InstanceGroup("ml.g7e.12xlarge", count), NativeParallelism(data_shard=64)).requests()
    assert request.resource_config == {"InstanceType": "ml.g7e.12xlarge", "InstanceCount": count}


def test_a_good_layout_has_nothing_to_advise() -> None:
    one, largest = InstanceGroup("ml.g7e.24xlarge"), InstanceGroup("ml.p4d.24xlarge", 2)
    assert advice_of(ModelParallelJob(one, NativeParallelism(data_shard=2, tensor=2))) == {}
    assert advice_of(ModelParallelJob(largest, NativeParallelism(data_shard=2, tensor=8))) == {}


def test_two_machines_where_one_larger_one_has_as_many_accelerators_are_advised_against() -> None:
    """Scale up before out: AWS's "Scaling training"."""
    text = advice_of(ModelParallelJob(TWO_OF_TWO, NativeParallelism(data_shard=2, tensor=2)))["scale-up-first"]
    assert "where one ml.g7e.24xlarge has 4" in text


def test_tensor_parallel_across_machines_is_advised_against() -> None:
    text = advice_of(ModelParallelJob(TWO_OF_TWO, NativeParallelism(tensor=4)))["tensor-across-machines"]
    assert text.startswith("tensor=4 does not divide the 2 processes of a ml.g7e.12xlarge")


def test_several_machines_without_efa_are_advised_against() -> None:
    job = ModelParallelJob(InstanceGroup("ml.g5.2xlarge", 2), NativeParallelism(data_shard=2))
    assert "use a type with EFA, like ml.g5.8xlarge" in advice_of(job)["no-efa"]


def test_several_machines_without_accelerators_are_nobodys_business() -> None:
    assert advice_of(ModelParallelJob(InstanceGroup("ml.c5.xlarge", 2), NativeParallelism(data_shard=2))) == {}


def test_stages_with_nothing_to_do_are_advised_against() -> None:
    group = InstanceGroup("ml.p4d.24xlarge")
    job = ModelParallelJob(group, NativeParallelism(pipeline=8, microbatches=1, schedule="gpipe"))
    assert advice_of(job)["idle-pipeline-stages"] == (
        "microbatches=1 for 8 pipeline stages leaves each stage idle 88% of the time, and at most 1 of them "
        "busy at once: use at least 8, better 32"
    )


def test_advice_becomes_warnings_of_the_construct_that_runs_the_job() -> None:
    stack = UserStack()
    stack.workflow(job=ModelParallelJob(TWO_OF_TWO, NativeParallelism(tensor=4)))
    warnings = Annotations.from_stack(stack).find_warning("/Stack/Training", Match.any_value())
    [warning] = [str(one.entry.data) for one in warnings if "tensor-across-machines" in str(one.entry.data)]
    assert "tensor=4 does not divide" in warning


def test_a_model_parallel_job_can_be_the_group_that_trains() -> None:
    train = ModelParallelJob(TWO_OF_TWO, NativeParallelism(data_shard=2, tensor=2))
    [request] = HeterogeneousJob(
        groups={"data_group": InstanceGroup("ml.c5.xlarge")}, train=train, train_group="dnn_group"
    ).requests()
    assert request.environment == train.requests()[0].environment
    assert request.hyperparameters["sagemaker_distribution_instance_groups"] == '["dnn_group"]'


def test_advice_on_the_group_that_trains_is_the_heterogeneous_jobs_too() -> None:
    train = DataParallelJob(InstanceGroup("ml.g5.2xlarge", 2))
    job = HeterogeneousJob(groups={"data_group": InstanceGroup("ml.c5.xlarge")}, train=train, train_group="dnn_group")
    assert advice_of(job) == advice_of(train)


def test_advice_is_a_value() -> None:
    assert Advice("cdk-sagemaker-training:no-efa", "why") == Advice("cdk-sagemaker-training:no-efa", "why")
