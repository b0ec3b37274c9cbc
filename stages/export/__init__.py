"""Parts of the stage `export`: from an optimised knife motion to certified files for a robot arm."""
