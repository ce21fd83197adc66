"""Which replica a process has."""

import torch.distributed as dist


def global_ordinal() -> int:
    return dist.get_rank()


def world_size() -> int:
    return dist.get_world_size()
