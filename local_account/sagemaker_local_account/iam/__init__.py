"""Authentication and authorization: SigV4, the calls of a request, and the evaluation of policies."""
