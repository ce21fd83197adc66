"""Values for data locations, file systems, capacity and observability of a job."""
