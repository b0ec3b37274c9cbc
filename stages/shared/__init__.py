"""Science that two or more stages use, one named package each."""
