"""Fits and predictions of real force logs."""
