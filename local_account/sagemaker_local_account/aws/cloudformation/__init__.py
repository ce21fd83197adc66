"""CloudFormation: the engine for stacks, and the provisioner of their resources."""
