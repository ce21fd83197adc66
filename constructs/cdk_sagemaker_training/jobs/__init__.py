"""Kinds of training job, launchers, compilers and parallelism, as values."""
