"""A run of one scan: the Prefect flow, the dashboard, deployments."""
