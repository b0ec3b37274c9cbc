"""What earlier cuts say about a material: one file of calibrated values per material, and the prior they give."""
