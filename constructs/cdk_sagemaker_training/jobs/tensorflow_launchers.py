"""Launchers of SageMaker's TensorFlow toolkit, as values."""

# ran: `MultiWorkerMirrored()`, `ParameterServer()` | request: test_launchers | test_tensorflow_launchers (soak) | no | no

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from cdk_sagemaker_training.jobs.advice import Advice
from cdk_sagemaker_training.jobs.instance_group import InstanceGroup
from cdk_sagemaker_training.jobs.launchers import check_not_trainium, processes_advice


@dataclass(frozen=True)
class MultiWorkerMirrored:
    """TensorFlow's MultiWorkerMirroredStrategy: one process on each host, which replicates the model to each of its GPUs.

    The toolkit sets ``TF_CONFIG``, with workers on port 8890. Needs TensorFlow 2.9 or later, and excludes instance groups
    (estimator.py of the SageMaker Python SDK, version 2).
    """

    alone_because = (
        "launches MultiWorkerMirroredStrategy, which SageMaker refuses with other groups; without a launcher the script can "
        "set TF_CONFIG itself, as training_code/heterogeneous/tensorflow does"
    )

    def hyperparameters(self, group: InstanceGroup) -> Mapping[str, str]:
        """Return the hyperparameters that make the toolkit use this launcher.

        Args:
            group: The machines.

        Raises:
            ValueError: The launcher does not support the machines.
        """
        check_not_trainium(self, group)
        return {"sagemaker_multi_worker_mirrored_strategy_enabled": "true"}

    def advice(self, group: InstanceGroup) -> tuple[Advice, ...]:
        """Return warnings about the launcher on these machines.

        Args:
            group: The machines.
        """
        return ()


@dataclass(frozen=True)
class ParameterServer:
    """TensorFlow's parameter servers: one worker and one parameter server on each host.

    The toolkit sets ``TF_CONFIG``, with servers on port 2223 and workers on 2222. A worker uses one GPU unless the script mirrors
    over several itself, so synthesis warns of machines with several (fw_utils.py of the SageMaker Python SDK, version 2).
    ``training_code/data_parallel/tensorflow/parameter_server.py`` is an example, for two hosts or more: on one the toolkit starts
    the script alone.
    """

    alone_because = "launches parameter servers, which the TensorFlow toolkit does not support with other groups"

    def hyperparameters(self, group: InstanceGroup) -> Mapping[str, str]:
        """Return the hyperparameters that make the toolkit use this launcher.

        Args:
            group: The machines.

        Raises:
            ValueError: The launcher does not support the machines.
        """
        check_not_trainium(self, group)
        return {"sagemaker_parameter_server_enabled": "true"}

    def advice(self, group: InstanceGroup) -> tuple[Advice, ...]:
        """Return warnings about the launcher on these machines.

        Args:
            group: The machines.
        """
        return processes_advice(group, 1)
