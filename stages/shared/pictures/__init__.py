"""Drawing the stages' pictures."""
