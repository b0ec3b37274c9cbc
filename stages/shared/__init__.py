"""Science used by two or more stages."""
