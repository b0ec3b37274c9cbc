"""Many scans: batch and inbox."""
