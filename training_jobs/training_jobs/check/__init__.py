"""Runs a script whole, and again with an interruption, and compares its processes and the steps that it makes."""
