"""The optimisers that MDMM may use: optimisers of torch, which take the variables and `lr`. One line each."""

OPTIMISERS = {
    "adamax": "torch.optim:Adamax",
    "adam": "torch.optim:Adam",
}
"""By the name used in params.yaml; the class is loaded when the search begins."""
