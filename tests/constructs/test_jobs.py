from stacks import message_of

from cdk_sagemaker_training import DataParallelJob, HeterogeneousJob, InstanceGroup, Torchrun

ONE_GPU = DataParallelJob(InstanceGroup("ml.g5.xlarge"))


def test_six_groups_are_refused() -> None:
    groups = {f"group_{number}": InstanceGroup("ml.c5.xlarge") for number in range(5)}
    message = message_of(lambda: HeterogeneousJob(groups=groups, train=ONE_GPU, train_group="dnn_group"))
    assert message.startswith("groups must be at most 4 beside train_group, 5 in all")
    assert message.endswith("'group_4', 'dnn_group']")


def test_a_job_without_other_groups_has_the_one_that_trains() -> None:
    [request] = HeterogeneousJob(groups={}, train=ONE_GPU, train_group="dnn_group").requests()
    assert [group["InstanceGroupName"] for group in request.resource_config["InstanceGroups"]] == ["dnn_group"]
    assert request.group_names == ("dnn_group",)


def test_groups_are_in_the_users_order() -> None:
    groups = {name: InstanceGroup("ml.c5.xlarge") for name in ("a", "b")}
    [request] = HeterogeneousJob(groups, ONE_GPU, "dnn_group", order=["b", "dnn_group", "a"]).requests()
    named = {group["InstanceGroupName"]: group["InstanceType"] for group in request.resource_config["InstanceGroups"]}
    assert list(named.items()) == [("b", "ml.c5.xlarge"), ("dnn_group", "ml.g5.xlarge"), ("a", "ml.c5.xlarge")]


def test_a_job_on_one_group_names_type_and_count() -> None:
    [request] = DataParallelJob(InstanceGroup("ml.p4d.24xlarge", 2), launcher=Torchrun()).requests()
    assert request.resource_config == {"InstanceType": "ml.p4d.24xlarge", "InstanceCount": 2}
    assert request.hyperparameters == {"sagemaker_torch_distributed_enabled": "true"}
    assert request.group_names == ()


def test_torchrun_of_a_heterogeneous_job_starts_in_the_group_that_trains_only() -> None:
    [request] = HeterogeneousJob(
        groups={"data_group": InstanceGroup("ml.c5.xlarge", 2)},
        train=DataParallelJob(InstanceGroup("ml.g5.xlarge"), launcher=Torchrun()),
        train_group="dnn_group",
    ).requests()
    assert request.resource_config == {
        "InstanceGroups": [
            {"InstanceType": "ml.c5.xlarge", "InstanceCount": 2, "InstanceGroupName": "data_group"},
            {"InstanceType": "ml.g5.xlarge", "InstanceCount": 1, "InstanceGroupName": "dnn_group"},
        ]
    }
    assert request.hyperparameters == {
        "sagemaker_distribution_instance_groups": '["dnn_group"]',
        "sagemaker_torch_distributed_enabled": "true",
    }
    assert request.group_names == ("data_group", "dnn_group")


def test_a_job_is_a_value() -> None:
    assert DataParallelJob(InstanceGroup("ml.g5.xlarge"), Torchrun()) == DataParallelJob(
        InstanceGroup("ml.g5.xlarge"), Torchrun()
    )
