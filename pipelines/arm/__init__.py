"""Simulated arm that executes exported cuts (`scan2cut arm serve`)."""
