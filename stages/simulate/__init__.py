"""Parts of the stage `simulate`."""
