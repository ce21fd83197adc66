"""Warnings about environment variables and hyperparameters: secrets, and what a host or a launcher sets itself.

"Do not include any security-sensitive information including account access IDs, secrets, or tokens in any environment fields",
nor in hyperparameters (service model, CreateTrainingJobRequest): whoever may read the template, the definition or
DescribeTrainingJob reads them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from aws_cdk import Tokenization

from cdk_sagemaker_training.core.tokens import is_unresolved
from cdk_sagemaker_training.facts.instance_facts import InstanceFacts, instance_facts
from cdk_sagemaker_training.jobs.advice import Advice, advice
from cdk_sagemaker_training.request.context import JobContext
from cdk_sagemaker_training.request.machine import instance_count, instance_types

_INSTEAD = (
    "give the job the secret's name, like environment={'HF_TOKEN_NAME': secret.secret_name}, let its role read it, "
    "secret.grant_read(workflow), and have the script do so, boto3.client('secretsmanager').get_secret_value(SecretId=name)"
)
_NAMES = re.compile(r"(TOKEN|SECRET|PASSWORD|PASSWD|API_KEY|APIKEY|ACCESS_KEY)$", re.IGNORECASE)
# Prefixes that these services give to their tokens (GitHub's list of secret scanning patterns).
_VALUES = re.compile(
    r"hf_[A-Za-z0-9]{20,}|(AKIA|ASIA)[A-Z0-9]{16}|gh[pousr]_[A-Za-z0-9]{30,}|sk-[A-Za-z0-9_-]{20,}|xox[bp]-.{10,}"
)

# The repository of CodeArtifact from which the toolkit installs (modules.py of sagemaker-training).
CODE_ARTIFACT = "CA_REPOSITORY_ARN"


def names_index(context: JobContext) -> bool:
    """Whether variables of a job name another index, or none, to the pip that installs its requirements.txt."""
    return any(
        name.startswith(("PIP_", "UV_")) or name == CODE_ARTIFACT for name in context.props.get("environment") or ()
    )


# What the toolkit of AWS's containers writes over (sagemaker-training, environment.py, to_env_vars).
_OF_TOOLKIT = re.compile(
    r"SM_(CHANNEL_.+|HP_.+|CHANNELS|HPS|HOSTS|CURRENT_HOST|CURRENT_INSTANCE_(TYPE|GROUP|GROUP_HOSTS)|INSTANCE_GROUPS(_DICT)?"
    r"|DISTRIBUTION_INSTANCE_GROUPS|IS_HETERO|NETWORK_INTERFACE_NAME|USER_ENTRY_POINT|FRAMEWORK_(PARAMS|MODULE)|RESOURCE_CONFIG"
    r"|INPUT_(DATA_CONFIG|DIR|CONFIG_DIR)|OUTPUT_(DATA_DIR|DIR|INTERMEDIATE_DIR)|MODULE_(NAME|DIR)|LOG_LEVEL|NUM_(CPUS|GPUS|NEURONS)"
    r"|MODEL_DIR|TRAINING_ENV|USER_ARGS|TOPOLOGY)"
)
# torchrun, "Environment Variables"; those of a host differ from host to host.
_OF_A_HOST = ("RANK", "GROUP_RANK", "NODE_RANK")
_OF_TORCHRUN = (*_OF_A_HOST, "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")


def environment_advice(variables: Mapping[str, Any], context: JobContext) -> Iterator[Advice]:
    """Warn of secrets, by their names or values, and of what has no effect, or not the intended one, on the job's machines."""
    yield from _warned("environment", variables, by_name=True)
    known = {name: value for name, value in variables.items() if isinstance(value, str) and not is_unresolved(value)}
    yield from _not_expanded(known)
    yield from _set_by_others(known, context)
    yield from _unused_devices(known, context)
    yield from _unused_adapter(known, context)


def _not_expanded(variables: Mapping[str, str]) -> Iterator[Advice]:
    """A value that shall add to the image's own, which no shell expands, such as a PATH in which there is no `train` then.

    aws/sagemaker-python-sdk 1857 has one of an endpoint, which is made of the same images and fails.
    """
    for name, value in variables.items():
        if re.search(rf"\$({re.escape(name)}\b|{{{re.escape(name)}\W)", value):
            text = (
                f"environment[{name!r}] replaces the image's own value and is not expanded, so that the job has {value!r} as "
                f"it is: write the whole value, or set it in the image's Dockerfile, like ENV {name}={value}"
            )
            yield from advice("variable-not-expanded", text)


def _set_by_others(variables: Mapping[str, str], context: JobContext) -> Iterator[Advice]:
    """What a launcher writes over, and what must differ between hosts that all have the same environment."""
    torchrun = "sagemaker_torch_distributed_enabled" in context.job_request.hyperparameters
    toolkit = getattr(context.props["image"], "is_container", False) and not context.props.get("container_entrypoint")
    for name, value in variables.items():
        if torchrun and name in _OF_TORCHRUN:
            text = f"environment[{name!r}] has no effect, since torchrun sets it in each process: leave it out, got {value!r}"
            yield from advice("variable-of-launcher", text)
        elif name in _OF_A_HOST and _has_several_hosts(context):
            text = (
                f"environment[{name!r}] is {value!r} on each host, so that they wait for each other for ever: leave it out, and "
                "use launcher=Torchrun(), which sets it in each process"
            )
            yield from advice("variable-of-launcher", text)
        elif toolkit and _OF_TOOLKIT.fullmatch(name):
            text = f"environment[{name!r}] has no effect, since AWS's container sets it: leave it out, got {value!r}"
            yield from advice("variable-of-toolkit", text)


def _unused_devices(variables: Mapping[str, str], context: JobContext) -> Iterator[Advice]:
    """GPUs that a process does not see (CUDA's guide, CUDA_VISIBLE_DEVICES), or of which one is another process's."""
    if (visible := variables.get("CUDA_VISIBLE_DEVICES")) is None:
        return
    seen = 0 if visible.startswith("-") else len([name for name in visible.split(",") if name.strip()])
    for type, facts in _facts(context):
        if facts.devices is not None and seen < facts.devices:
            yield from advice(
                "hidden-devices",
                f"environment['CUDA_VISIBLE_DEVICES'] shows {seen} of the {facts.devices} accelerators of {type}: the "
                f"others are billed, and a process that a launcher starts for one of them fails: leave it out, got {visible!r}",
            )


def _unused_adapter(variables: Mapping[str, str], context: JobContext) -> Iterator[Advice]:
    """An Elastic Fabric Adapter that NCCL is told not to use (libfabric's fi_provider(7); NCCL's guide, NCCL_NET)."""
    provider = variables.get("FI_PROVIDER", "efa").lower()
    if ("efa" in provider) == provider.startswith("^"):  # a list of providers, or of those to leave out
        name = "FI_PROVIDER"
    elif variables.get("NCCL_NET", "").lower() == "socket":
        name = "NCCL_NET"
    else:
        return
    for type, facts in _facts(context):
        if facts.efa_interfaces and _has_several_hosts(context):
            yield from advice(
                "efa-turned-off",
                f"environment[{name!r}] has the machines exchange gradients over TCP, where {type} has an Elastic Fabric "
                f"Adapter: leave it out, got {variables[name]!r}",
            )


def _has_several_hosts(context: JobContext) -> bool:
    count = instance_count(context.job_request)
    return count is not None and count > 1


def _facts(context: JobContext) -> Iterator[tuple[str, InstanceFacts]]:
    for type in instance_types(context.job_request):
        if (facts := instance_facts(type)) is not None:
            yield type, facts


def hyperparameters_advice(values: Mapping[str, Any], context: JobContext) -> Iterator[Advice]:
    """Warn of hyperparameters that hold a secret, by their values: `pad_token` is a name of many scripts."""
    yield from _warned("hyperparameters", values, by_name=False)


def _warned(prop: str, values: Mapping[str, Any], *, by_name: bool) -> Iterator[Advice]:
    for name, value in values.items():
        if not isinstance(value, str):
            continue
        if is_unresolved(value):
            tokens = Tokenization.reverse_string(value).tokens
            if any(type(token).__name__ == "CfnDynamicReference" for token in tokens):
                text = f"{prop}[{name!r}] is a dynamic reference, which CloudFormation replaces by the plain secret; {_INSTEAD}"
                yield from advice("secret-in-definition", text)
        elif _VALUES.fullmatch(value) or (by_name and value and _NAMES.search(name)):
            yield from advice("plain-secret", f"{prop}[{name!r}] looks like a secret in plain text; {_INSTEAD}")
