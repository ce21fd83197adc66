"""The two tables of AWS's article on heterogeneous clusters, as data.

From "Improve price performance of your model training using Amazon SageMaker heterogeneous clusters" (AWS Machine Learning
Blog, 27 October 2022), with training prices of us-east-1 of that time. Its column "cost per step" is in cents, though it says
dollars: 37.688 $/h x 192 ms is $0.00201, and the table has 0.201.

What a batch costs in preprocessing is not published; it follows from each homogeneous row, in which the vCPUs were the limit:
192 ms x 96 vCPUs = 18.4 vCPU seconds, 1193 ms x 8 = 9.5. Nor is the training step's own time: 64 ms is the 74 % of 86 ms in
which the first example's notebook saw the GPUs busy; for the second 100 ms is declared, and any time below 184 ms gives the
same ideal.
"""

from __future__ import annotations

from dataclasses import dataclass

ARTICLE = (
    "https://aws.amazon.com/blogs/machine-learning/"
    "improve-price-performance-of-your-model-training-using-amazon-sagemaker-heterogeneous-clusters/"
)


@dataclass(frozen=True)
class Machine:
    """A host: its price in dollars an hour, its vCPUs, and the seconds that one of these works on one batch."""

    instance_type: str
    dollars: float
    vcpus: int
    seconds: float

    def __post_init__(self) -> None:
        if self.vcpus < 1 or self.seconds <= 0:
            raise ValueError(f"a machine must have vCPUs that take time, got {self.vcpus} and {self.seconds:g} s")


@dataclass(frozen=True)
class Setup:
    """One row: the training host, its data hosts, the training step's own seconds, a batch's shape, AWS's seconds per step.

    ``vcpus_of_worker``: the number of vCPUs that one worker process emulates by a shorter time; it divides every host's number.
    """

    name: str
    training: Machine
    data: tuple[Machine, ...]
    step: float
    batch: tuple[int, ...]
    vcpus_of_worker: int
    published: float

    def __post_init__(self) -> None:
        for machine in self.hosts:
            if machine.vcpus % self.vcpus_of_worker:
                raise ValueError(f"vcpus_of_worker must divide {machine.vcpus} vCPUs, got {self.vcpus_of_worker}")

    @property
    def hosts(self) -> tuple[Machine, ...]:
        return (self.training, *self.data)

    @property
    def workers(self) -> int:
        return sum(machine.vcpus for machine in self.hosts) // self.vcpus_of_worker

    @property
    def ideal(self) -> float:
        """Seconds per step without any waiting."""
        return max(self.step, 1 / sum(machine.vcpus / machine.seconds for machine in self.hosts))

    def dollars(self, seconds: float) -> float:
        """The cost of a step of the given seconds."""
        return sum(machine.dollars for machine in self.hosts) * seconds / 3600


KERAS_BATCH, MNIST_BATCH = (1024, 32, 32, 3), (8192, 28, 28)  # float32: 12.6 and 25.7 MB
KERAS_SECONDS, MNIST_SECONDS = 0.192 * 96, 1.193 * 8
P4D = Machine("ml.p4d.24xlarge", 37.688, 96, KERAS_SECONDS)
C5_18 = Machine("ml.c5.18xlarge", 3.672, 72, KERAS_SECONDS)
P3 = Machine("ml.p3.2xlarge", 3.825, 8, MNIST_SECONDS)
C5_9 = Machine("ml.c5.9xlarge", 1.836, 36, MNIST_SECONDS)
# AWS's 184 ms were the work of 32 workers on the c5 alone, so a vCPU of it took 5.9 s and not 9.5 s.
C5_9_AS_SEEN = Machine("ml.c5.9xlarge", 1.836, 36, 0.184 * 32)

SETUPS = (
    Setup("ResNet-50, 96 vCPUs", P4D, (), 0.064, KERAS_BATCH, 12, 0.192),
    Setup("ResNet-50, 96 + 144 vCPUs", P4D, (C5_18, C5_18), 0.064, KERAS_BATCH, 12, 0.086),
    Setup("MNIST, 8 vCPUs", P3, (), 0.1, MNIST_BATCH, 4, 1.193),
    Setup("MNIST, 8 + 36 vCPUs", P3, (C5_9,), 0.1, MNIST_BATCH, 4, 0.184),
    Setup("MNIST, 8 + 36 faster vCPUs", P3, (C5_9_AS_SEEN,), 0.1, MNIST_BATCH, 4, 0.184),
)
