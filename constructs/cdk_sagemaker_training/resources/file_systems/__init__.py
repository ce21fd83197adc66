"""File systems that jobs mount: who may, from which subnets, and Lustre volumes."""
