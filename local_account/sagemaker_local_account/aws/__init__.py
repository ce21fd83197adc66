"""AWS's services, a folder each: `registry.py` has the list."""
