"""From an optimised knife motion to certified files for a Franka arm."""
