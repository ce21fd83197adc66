"""Hosts as Linux namespaces: their specification, supervisor, root file system, network, devices and limits."""
