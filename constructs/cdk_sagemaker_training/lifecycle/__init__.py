"""How a job is started, found, waited for, stopped and cleaned up."""
