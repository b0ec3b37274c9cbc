"""Parts of the stage `calibrate`: from a recorded cut to the parameters of the simulator."""
