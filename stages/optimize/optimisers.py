"""The optimisers that MDMM may use: a line each. No NumPy here: the command line checks names against this table."""

OPTIMISERS = {
    "adamax": "stages.optimize.adam:Adamax",
    "adam": "stages.optimize.adam:Adam",
}
"""By the name used in params.yaml: a class with `step(gradient, rate)`, which returns what to add to the variables."""
