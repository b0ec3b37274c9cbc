"""Runtime of all stages: descriptions, parameters, artifacts, files, checkpoints, process entry point."""
