"""Transfers between hosts and S3, and file systems that hosts mount."""
