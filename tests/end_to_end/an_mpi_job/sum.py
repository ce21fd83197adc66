"""Adds up the ranks' numbers by MPI."""

from mpi4py import MPI

everyone = MPI.COMM_WORLD
# One write for each line, so that those of several ranks do not mix.
print(
    f"rank {everyone.rank} of {everyone.size}: the sum is {everyone.allreduce(everyone.rank + 1)}\n", end="", flush=True
)
