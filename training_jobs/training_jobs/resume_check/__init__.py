"""Runs a script whole, and again with an interruption, and compares the steps that both make."""
