"""Known knives, one file each, and how a knife file is read."""
