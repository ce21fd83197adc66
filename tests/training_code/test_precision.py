"""common/precision.py: which format a device has, and the scaler of fp16's gradients. CUDA is a double: there is no GPU here."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parents[2] / "training_code"))

from common.precision import Precision, automatic

CPU, CUDA = torch.device("cpu"), torch.device("cuda")


@pytest.mark.parametrize(
    ("capability", "name"), [((7, 0), "fp16"), ((7, 5), "fp16"), ((8, 0), "bf16"), ((9, 0), "bf16")]
)
def test_a_gpu_without_bf16_computes_in_fp16(
    monkeypatch: pytest.MonkeyPatch, capability: tuple[int, int], name: str
) -> None:
    """As PyTorch's own function has it, whose argument against emulation the PyTorch of SMDDP's last container lacks."""
    major, minor = capability
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: SimpleNamespace(major=major, minor=minor))
    assert automatic(CUDA) == name
    assert torch.cuda.is_bf16_supported(including_emulation=False) is (name == "bf16")


def test_a_cpu_computes_in_fp32() -> None:
    assert Precision("auto", CPU).name == "fp32"


def step(precision: Precision, gradient: float) -> tuple[float, float]:
    """The weight after a step of gradient descent from 0, and the scaler's scale."""
    weight = torch.nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.SGD([weight], lr=1.0)
    loss = (weight * torch.tensor([gradient])).sum()
    precision.scaler.scale(loss).backward()  # type: ignore[no-untyped-call]
    precision.scaler.step(optimizer)
    precision.scaler.update()
    return weight.item(), precision.scaler.get_scale()


def test_fp16_takes_the_step_of_the_gradient_without_its_scale() -> None:
    assert step(Precision("fp16", CPU), 2**-24) == (-(2**-24), 2.0**16)


def test_fp16_leaves_a_step_with_infinite_gradients_out_and_halves_the_scale() -> None:
    assert step(Precision("fp16", CPU), float("inf")) == (0.0, 2.0**15)


@pytest.mark.parametrize("name", ["fp32", "bf16"])
def test_no_other_format_scales(name: str) -> None:
    assert step(Precision(name, CPU), 2.0) == (-2.0, 1.0)


@pytest.mark.parametrize(
    ("name", "dtype"), [("fp32", torch.float32), ("bf16", torch.bfloat16), ("fp16", torch.float16)]
)
def test_products_are_computed_in_the_format(name: str, dtype: torch.dtype) -> None:
    with Precision(name, CPU).autocast():
        assert (torch.ones(2, 2) @ torch.ones(2, 2)).dtype == dtype


@pytest.mark.filterwarnings("ignore:.*GradScaler")
def test_pytorch_2_2_has_a_scaler_for_cuda_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a double of it: torch.amp of 2.2, in SMDDP's last container, has no GradScaler."""
    monkeypatch.delattr(torch.amp, "GradScaler")
    assert step(Precision("fp32", CPU), 2.0) == (-2.0, 1.0)
