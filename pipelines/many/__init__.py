"""Many scans: batch, inbox, clusters."""
