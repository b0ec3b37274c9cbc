"""Robots: data files, kinematics, loads."""
