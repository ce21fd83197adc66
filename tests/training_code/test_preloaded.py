"""Programs that are forked off a process with PyTorch end as those that the interpreter runs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from preloaded import start

SCRIPT = """
import atexit, sys, threading
atexit.register(lambda: print("at exit after", repr(getattr(sys, "last_value", None))))
threading.Thread(target=lambda: (threading.main_thread().join(), print("thread"))).start()
print("unfinished", end="")
"""
ENDINGS = {
    "well": "",
    "by a code": "sys.exit(3)",
    "by a text": "sys.exit('why')",
    "by an error": "raise ValueError('why')",
}


@pytest.mark.parametrize("ending", ENDINGS.values(), ids=ENDINGS)
def test_a_program_ends_with_the_output_and_the_code_of_one_that_the_interpreter_runs(
    tmp_path: Path, ending: str
) -> None:
    script, errors = tmp_path / "script.py", tmp_path / "errors"
    script.write_text(SCRIPT + ending)
    of_interpreter = subprocess.run([sys.executable, script], capture_output=True, text=True)
    with start([script], cwd=tmp_path, env={"PATH": os.environ["PATH"]}, errors=errors) as program:
        printed, _ = program.communicate()
        assert (printed, program.wait()) == (of_interpreter.stdout, of_interpreter.returncode)
    assert errors.read_text().splitlines()[-1:] == of_interpreter.stderr.splitlines()[-1:]
    assert printed.startswith("unfinishedthread\nat exit after")
