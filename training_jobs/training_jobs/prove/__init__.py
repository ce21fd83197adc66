"""Explores every execution of the state machines that start training jobs, instead of a sample of them."""
