"""Processes that are forked from one that has torch loaded, and no thread: they start in a hundredth of a second."""

from __future__ import annotations

import multiprocessing
import pickle
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing import forkserver, spawn
from typing import Any

from torch.utils.data import Dataset

PRELOADED = ("torch", "torch.utils.data", "pyarrow.flight", "data_service")
START_ATTEMPTS, START_PAUSE = 20, 0.1  # seconds
WITHOUT_SCRIPT = "makes batches without the script"


@dataclass(frozen=True)
class Payload:
    """A dataset, and what collates its samples, on their way to the workers; ``modules`` are those that they come from."""

    pickled: bytes
    modules: tuple[str, ...]

    @staticmethod
    def of(dataset: Dataset[Any], collate_fn: Callable[[list[Any]], Any] | None) -> Payload:
        """Raises ``ValueError`` where they cannot be sent."""
        try:
            data = pickle.dumps((dataset, collate_fn))
        except Exception as error:
            raise ValueError(
                "dataset and collate_fn go to worker processes, so they must be picklable, like objects of a module's "
                f"classes and functions (no lambda, no open file), got {type(dataset).__qualname__}: {error}"
            ) from error
        modules = (type(dataset).__module__, getattr(collate_fn, "__module__", None) or type(collate_fn).__module__)
        return Payload(data, modules if b"__main__" not in data else ("__main__",))


class Processes:
    """Starts processes; those of a dataset that is defined in the script itself import the script first, and no others.

    They are forked neither from this process, whose gRPC threads do not survive a fork, nor is each a whole new interpreter.
    """

    def __init__(self, modules: tuple[str, ...]) -> None:
        self._of_script = "__main__" in modules
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload([*PRELOADED, *(name for name in modules if name != "__main__")])

    def pipe(self) -> Any:
        return self._context.Pipe()

    def start(self, target: Callable[..., None], *arguments: Any, daemon: bool = True) -> Any:
        """Raises ``OSError`` where no process can be started.

        The forkserver ends with the process that is killed while it sends it a request (``recvfds`` raises in its loop), so the
        request after that begins with a forkserver of its own.
        """
        name = None if self._of_script else WITHOUT_SCRIPT
        for left in reversed(range(START_ATTEMPTS)):
            process = self._context.Process(target=target, args=arguments, name=name, daemon=daemon)
            try:
                process.start()
            except (ConnectionError, EOFError) as error:
                if not left:
                    raise OSError(f"multiprocessing's forkserver has ended: {error}") from error
                time.sleep(START_PAUSE)  # until it is seen to have ended
            else:
                break
        return process


def fork_from_the_parents_forkserver() -> None:
    """Have processes that this one starts be forked from where it was itself, instead of another server with torch of its own."""
    server: Any = forkserver._forkserver
    if server._forkserver_address is not None:
        server.ensure_running = lambda: None


def ending(code: int) -> str:
    """How a process has ended, as a sentence's verb."""
    if code == -signal.SIGKILL:
        return "was killed (-9): what ran out of memory is ended so"
    if code < 0:
        return f"was ended by {signal.Signals(-code).name} ({code})"
    return f"ended with {code}"


def _leave_out_the_script() -> None:
    """Have processes of that name not import the script that started them.

    multiprocessing would import it into each of them, with all that it imports in turn, and would refuse a script that lacks
    ``if __name__ == "__main__":``, which a DataLoader's workers do not ask for on Linux.
    """
    prepare = spawn.get_preparation_data

    def get_preparation_data(name: str) -> dict[str, Any]:
        data = prepare(name)
        if name == WITHOUT_SCRIPT:
            data.pop("init_main_from_name", None)
            data.pop("init_main_from_path", None)
        return data

    spawn.get_preparation_data = get_preparation_data


_leave_out_the_script()
