"""The 3D replay of the optimised cut: one recording, several viewers."""
