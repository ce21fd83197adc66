"""Launchers of SageMaker's TensorFlow toolkit, as values."""

# ran: `MultiWorkerMirrored()`, `ParameterServer()` | request: test_launchers | test_tensorflow_launchers (soak) | no | no

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from cdk_sagemaker_training.jobs.instance_group import InstanceGroup
from cdk_sagemaker_training.jobs.launchers import ToolkitLauncher, check_not_trainium


@dataclass(frozen=True)
class MultiWorkerMirrored(ToolkitLauncher):
    """TensorFlow's MultiWorkerMirroredStrategy: one process on each host, which replicates the model to each of its GPUs.

    The toolkit sets ``TF_CONFIG``, with workers on port 8890. Needs TensorFlow 2.9 or later, and excludes instance groups
    (estimator.py of the SageMaker Python SDK, version 2).
    """

    alone_because = (
        "launches MultiWorkerMirroredStrategy, which SageMaker refuses with other groups; without a launcher the script can "
        "set TF_CONFIG itself, as training_code/heterogeneous/tensorflow does"
    )

    def _keys(self, group: InstanceGroup) -> Mapping[str, str]:
        check_not_trainium(self, group)
        return {"sagemaker_multi_worker_mirrored_strategy_enabled": "true"}


@dataclass(frozen=True)
class ParameterServer(ToolkitLauncher):
    """TensorFlow's parameter servers: one worker and one parameter server on each host.

    The toolkit sets ``TF_CONFIG``, with servers on port 2223 and workers on 2222. A worker uses one GPU unless the script mirrors
    over several itself, so synthesis warns of machines with several (fw_utils.py of the SageMaker Python SDK, version 2).
    ``training_code/data_parallel/tensorflow/parameter_server.py`` is an example, for two hosts or more: on one the toolkit starts
    the script alone.
    """

    alone_because = "launches parameter servers, which the TensorFlow toolkit does not support with other groups"
    processes_per_host = 1

    def _keys(self, group: InstanceGroup) -> Mapping[str, str]:
        check_not_trainium(self, group)
        return {"sagemaker_parameter_server_enabled": "true"}
