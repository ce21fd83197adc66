"""Constructs of AWS resources: images, networks, roles, buckets, file systems."""
