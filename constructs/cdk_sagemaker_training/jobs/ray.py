"""A Ray cluster over all machines of a job, as a launcher."""

# ran: `Ray()` | request: test_ray | test_training_code | no | no

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from cdk_sagemaker_training.core.errors import must
from cdk_sagemaker_training.jobs.instance_group import InstanceGroup
from cdk_sagemaker_training.jobs.launchers import ToolkitLauncher
from cdk_sagemaker_training.props.prop import IN_JSON, Known, Prop
from cdk_sagemaker_training.props.prop_types import check_fields

if TYPE_CHECKING:
    from aws_cdk import Size

_ENABLED = "sagemaker_ray_enabled"
# What the toolkit starts without a shell: _SAFE_ENTRY_POINT of process.py in sagemaker-training 5.1.4.
_SCRIPT = re.compile(r"[A-Za-z0-9._][A-Za-z0-9._+-]*(/[A-Za-z0-9._+-]+)*\.py")
_LEAST_OBJECT_STORE = (
    75 * 1024**2
)  # bytes: OBJECT_STORE_MINIMUM_MEMORY_BYTES of ray/_private/ray_constants.py, Ray 2.60
# A label's value ("Use labels to control scheduling" in Ray's documentation): LABEL_REGEX of ray/_private/label_utils.py.
_LABEL = re.compile(r"[a-zA-Z0-9]([a-zA-Z0-9_.-]{0,61}[a-zA-Z0-9])?")
_RESOURCES = ("CPU", "GPU", "memory", "object_store_memory")  # Ray's own


@dataclass(frozen=True)
class Ray(ToolkitLauncher):
    """A Ray cluster over all machines of the job, for Ray Data and Ray Train; the script runs once, on the cluster's head.

    The head is on the first host of the training group. Each host is a node with its CPUs and GPUs, a label ``group`` with the
    name of its instance group, and a resource of that name, one for each of its CPUs. A task or actor with
    ``label_selector={"group": "data_group"}`` runs in that group. A job without groups has one, ``homogeneousCluster``.

    The image needs Ray 2.49 or later, and ``COPY ray_cluster /opt/ml/code/ray_cluster``: the toolkit starts that file of
    ``training_code_path()`` on every host instead of the script.

    Sources: "ray start" and "Use labels to control scheduling" in Ray's documentation; environment.py of the SageMaker training
    toolkit, which reads SAGEMAKER_PROGRAM before the hyperparameter ``sagemaker_program``.

    Args:
        script: Path of the Python script below /opt/ml/code.
        object_store_memory: Memory of each host's object store, at least 75 MiB; None for 30 % of the host's memory.

    Raises:
        ValueError: ``script`` is not a Python file below /opt/ml/code, or is the launcher itself; the object store is too small.
    """

    script: Annotated[
        str, Prop(known=Known("synth", "since it must be the name of a Python file"), example="'train.py'")
    ] = "train.py"
    object_store_memory: Annotated[Size | None, IN_JSON] = None
    program = "ray_cluster/ray_cluster.py"

    def __post_init__(self) -> None:
        check_fields(self)
        parts = self.script.split("/")
        if not _SCRIPT.fullmatch(self.script) or {".", ".."} & {*parts}:
            rule = "be a Python file below /opt/ml/code whose path has letters, digits, '.', '_', '+' and '-' only"
            raise must("script", rule, "'train.py'", repr(self.script))
        if self.script == self.program:
            raise must("script", "be the one that trains", "'train.py'", f"the launcher's own {self.script!r}")
        self._object_store_bytes()

    def _keys(self, group: InstanceGroup) -> Mapping[str, str]:
        store = self._object_store_bytes()
        return {
            _ENABLED: "true",
            "sagemaker_program": json.dumps(self.program),
            "sagemaker_ray_script": json.dumps(self.script),
            **({} if store is None else {"sagemaker_ray_object_store_memory": str(store)}),
        }

    def _object_store_bytes(self) -> int | None:
        if self.object_store_memory is None:
            return None
        later = self.object_store_memory.is_unresolved()
        size = 0 if later else self.object_store_memory.to_bytes()
        if size < _LEAST_OBJECT_STORE:
            rule = "be at least 75 MiB, Ray's least, and known when the app is synthesized"
            got = "a token" if later else f"{size / 1024**2:g} MiB"
            raise must("object_store_memory", rule, "Size.gibibytes(8)", got)
        return int(size)


def check_group_names(hyperparameters: Mapping[str, str], names: Iterable[str]) -> None:
    """Check that names of instance groups can be labels and resources of Ray's nodes, if the launcher is ``Ray``."""
    for name in names if _ENABLED in hyperparameters else ():
        if not _LABEL.fullmatch(name) or name in _RESOURCES:
            rule = "have names that Ray takes as labels and resources: at most 63 letters, digits, '-', '_' and '.', a letter or "
            rule += f"digit first and last, and none of {', '.join(_RESOURCES)}"
            raise must("groups", rule, "'data_group'", repr(name))
