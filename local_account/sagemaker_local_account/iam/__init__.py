"""Who calls and whether the call is allowed: SigV4, policies, resource policies, sessions."""
