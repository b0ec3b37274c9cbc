"""replay: the optimised cut, recorded for the 3D viewers."""
