"""Runs model_parallel/smp.py with a stand-in for the SageMaker model-parallel library, which exists in AWS's containers alone.

The stand-in has the two functions that smp.py calls, and does nothing but say that they were called: it shows that the
file runs and in which order it calls them, and nothing about the library. With ``WITHOUT_RMS_NORM`` PyTorch is as before 2.4.
"""

from __future__ import annotations

import os
import runpy
import sys
import types
from pathlib import Path

import torch

library = types.ModuleType("torch.sagemaker")
library.init = lambda: print("init")
library.transform = lambda model: print("transform") or model
sys.modules["torch.sagemaker"] = torch.sagemaker = library

if "WITHOUT_RMS_NORM" in os.environ:
    del torch.nn.RMSNorm

if __name__ == "__main__":
    script = Path(__file__).parents[2] / "training_code" / "model_parallel" / "smp.py"
    runpy.run_path(str(script), run_name="__main__")
