"""Running the stages: DVC decides what is fresh, Prefect runs and shows, the command line speaks."""
