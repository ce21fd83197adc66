"""Authentication and authorization: SigV4, policies, resource policies, sessions."""
