"""CloudFormation: the engine for stacks, the provisioner of their resources, and the support matrix of resource types."""
