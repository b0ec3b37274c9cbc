"""The stage `precut`."""
