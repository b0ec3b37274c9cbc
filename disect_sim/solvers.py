"""Which device and which linear solver a run uses."""

import warp as wp

from disect_sim.errors import InputError

SOLVERS = {
    "cholesky": "conjugate gradients with an old Cholesky factor, on the host",
    "conjugate_gradients": "conjugate gradients with block-Jacobi and affine clusters; a whole run stays on the device",
}
LARGE_TETS = 20_000
"""Beyond so many tets conjugate gradients are the faster ones on the CPU too (docs/performance.md)."""
LARGE_FORWARD_TETS = 6_000
"""The same for a run without gradient, whose steps then never leave the device."""
OLDEST_DRIVER = "12.4"
"""CUDA version of the oldest driver whose graphs have loops."""


def choose_device(device: str | None) -> str:
    """The device asked for, or CUDA if there is one, or the CPU."""
    if device is None:
        return "cuda:0" if wp.is_cuda_available() else "cpu"
    if device.startswith("cuda") and not wp.is_cuda_available():
        raise InputError(
            f"simulate: device {device!r} was asked for, but no CUDA device is here. Use device='cpu'."
        )
    return device


def on_cuda() -> bool:
    """Whether runs use a CUDA device by default: many cuts then go there in batches, not to processes."""
    return choose_device(None) != "cpu"


def choose_solver(name: str | None, device: str, tets: int) -> str:
    """The solver asked for, or the one made for the device and for so many tets."""
    able = device == "cpu" or wp.is_conditional_graph_supported()
    if name is None:
        better = device != "cpu" or tets > LARGE_TETS
        return "conjugate_gradients" if better and able else "cholesky"
    if name not in SOLVERS:
        raise InputError(
            f"simulate: solver is {name!r}. It must be one of {', '.join(map(repr, SOLVERS))}. Choose one."
        )
    if name == "conjugate_gradients" and not able:
        raise InputError(
            f"simulate: solver {name!r} needs a CUDA driver of version {OLDEST_DRIVER} or newer. Update the driver, or "
            "use solver='cholesky'."
        )
    return name


def forward_solver(tets: int) -> str | None:
    """The fastest solver of a run without gradient, for `simulate`; the force is the same to 1e-6."""
    large = not on_cuda() and tets > LARGE_FORWARD_TETS
    return "conjugate_gradients" if large else None


def describe_device() -> str:
    """One sentence: the device that a run uses by default, and how it solves its steps there."""
    device = choose_device(None)
    solver = choose_solver(None, device, 0)
    if device == "cpu":
        return f"no CUDA device; the simulator runs on the CPU: up to {LARGE_TETS:,} tets {SOLVERS[solver]}"
    found = wp.get_device(device)
    name = f"{found.name}, {found.total_memory / 1e9:.0f} GB ({device})"
    if solver == "cholesky":
        return f"{name}: {SOLVERS[solver]}, since the driver is older than CUDA {OLDEST_DRIVER}; update it"
    return f"{name}: {SOLVERS[solver]}"
