"""Triangle surfaces."""
