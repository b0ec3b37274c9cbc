"""tetrahedralize_half: the stage tetrahedralize once more, on the body of the second cut. It has no code of its own."""
