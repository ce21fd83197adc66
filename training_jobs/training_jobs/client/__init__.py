"""The classes of the typed client, which ``training_jobs`` exports."""
