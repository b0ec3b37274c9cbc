"""Library of calibrated cuts: one file of calibrated values per material, and the prior they give."""
