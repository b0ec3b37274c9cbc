"""Runs of one scan: Prefect flow, server, dashboard, deployments."""
