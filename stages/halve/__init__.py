"""The steps of the stage `halve`: the first cut's face, the pose for the second cut, the picture."""
