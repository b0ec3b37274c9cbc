"""precut_half: the stage precut once more, on the body of the second cut. It has no code of its own."""
