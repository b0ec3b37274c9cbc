"""A simulated arm that executes an exported cut: `scan2cut arm serve`."""
