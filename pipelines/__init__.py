"""Run the stages: DVC decides which are stale, Prefect runs and monitors them, the command line controls both."""
