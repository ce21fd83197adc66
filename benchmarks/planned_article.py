"""The tables of AWS's article on heterogeneous clusters, predicted from their rows without data hosts.

From "Improve price performance of your model training using Amazon SageMaker heterogeneous clusters" (AWS Machine Learning
Blog, 27 October 2022) and the notebooks of its two examples (aws/amazon-sagemaker-examples, training/heterogeneous-clusters),
with prices of us-east-1 of that time. What a row without data hosts gives:

* a batch's preprocessing is its step times its vCPUs, since its vCPUs were the limit ("close to all the 96 vCPU of the instance
  is utilized");
* the training's own part of a ResNet-50 step is at most the share of it in which the GPUs were busy: "GPU utilization is only
  ~45%" of 192 ms are 86.4 ms. MNIST's is not published; any below 180 ms gives the same row.

Where AWS rounded, or its text differs from its own tables:

* the column "cost per step" is in cents, though it says dollars: $37.688 / h x 192 ms is $0.00201, and it has 0.201;
* 96 + 2 x 72 are 240 vCPUs, not 210; with 240 the vCPUs would allow 76.8 ms, so that the GPUs bound the 86 ms, while "the CPU
  usage on all 3 instances are close to 80%";
* the notebook's own log has 181 to 194 ms for the row of 192, and its text 209;
* the c5's vCPUs are faster than the p3's. 3.4 GHz is EC2's SustainedClockSpeedInGhz of c5 (DescribeInstanceTypes, as recorded in
  moto 5.2.5); 2.3 GHz it has for other types with p3.2xlarge's processor, the E5-2686 v4 (r4, i3, m4.16xlarge). With equal vCPUs
  the row would be 265 ms. The p3's own vCPUs prepare nothing in that example, which has 32 workers on the c5's 36 vCPUs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from training_jobs.planning.configurations import Market, Planned, plan
from training_jobs.planning.measurement import Measurement
from training_jobs.planning.step_time import Configuration, Machines

PRICES = {"ml.p4d.24xlarge": 37.688, "ml.c5.18xlarge": 3.672, "ml.p3.2xlarge": 3.825, "ml.c5.9xlarge": 1.836}


@dataclass(frozen=True)
class Row:
    """A table: its row without data hosts, and the published one with them."""

    name: str
    measurement: Measurement
    train: Machines
    data: Machines
    local_share: float
    alone_seconds: float
    alone_cents: float
    published_seconds: float
    published_cents: float
    published_saved: float
    vcpu_speed: Mapping[str, float] = field(default_factory=dict)

    def predicted(self, data: Machines | None) -> Planned:
        prices = {one.instance_type: PRICES[one.instance_type] for one in (self.train, self.data)}
        rows = plan(self.measurement, Market(prices), local_share=self.local_share, vcpu_speed=self.vcpu_speed).rows
        (found,) = (row for row in rows if row.configuration == Configuration(self.train, data))
        return found


ROWS = (
    Row(
        "ResNet-50",
        Measurement(128, 0.192 * 96 / 1024, 32 * 32 * 3 * 4, {"NVIDIA A100": 0.45 * 0.192}),
        Machines("ml.p4d.24xlarge"),
        Machines("ml.c5.18xlarge", 2),
        local_share=1.0,
        alone_seconds=0.192,
        alone_cents=0.201,
        published_seconds=0.086,
        published_cents=0.108,
        published_saved=46,
    ),
    Row(
        "MNIST",
        Measurement(8192, 1.193 * 8 / 8192, 28 * 28 * 4 + 8, {"NVIDIA V100": 0.1}),
        Machines("ml.p3.2xlarge"),
        Machines("ml.c5.9xlarge"),
        local_share=0.0,
        alone_seconds=1.193,
        alone_cents=0.127,
        published_seconds=0.184,
        published_cents=0.029,
        published_saved=77,
        vcpu_speed={"c5": 3.4 / 2.3},
    ),
)
