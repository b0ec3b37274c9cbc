"""Measurements, printed; nothing here is a test."""
