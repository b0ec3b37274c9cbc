"""Parts of the stage `optimize`."""
