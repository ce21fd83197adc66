"""CodeBuild: projects and their builds."""
