"""Images without a container engine: a stand-in `docker`, the evaluation of Dockerfiles, and Python environments."""
