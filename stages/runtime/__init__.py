"""What all stages share: artifacts, guard, files, pictures."""
