"""Slicing a whole fruit: the plan, its scans, one programme for the arm, learning from slice to slice."""
