"""Writes tokens/tokens-00000.npy: modules of Python's standard library, of which each byte is a token."""

import sysconfig
from pathlib import Path

import numpy as np

text = b"\n".join(file.read_bytes() for file in sorted(Path(sysconfig.get_path("stdlib")).glob("*.py"))[:50])
Path("tokens").mkdir(exist_ok=True)
np.save("tokens/tokens-00000.npy", np.frombuffer(text, np.uint8))
