"""The `scan2cut` command line."""
