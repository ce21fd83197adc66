"""FSx for Lustre: file systems that are linked to S3."""
