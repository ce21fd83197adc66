"""KMS: keys that are disabled or pending deletion reject operations."""
