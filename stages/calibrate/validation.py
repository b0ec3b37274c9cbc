"""Is the fit good, and what could the log tell at all?"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from disect_sim.result import Result

TOUCHED_NS = 1.0e-4
"""A spring that got less impulse from the knife than this was not touched [N s]: 0.1 N for a millisecond."""

Array = NDArray[np.float64]


def held_out_blocks(time: Array, block_s: float, fraction: float) -> NDArray[np.bool_]:
    """Every so many blocks of time after contact (time 0), one is kept from the fit; shape [sample_count].

    A filter mixes neighbours within 1 / cutoff, so the first samples of a block are not wholly unseen.
    """
    if fraction == 0.0:
        return np.zeros(len(time), bool)
    every = max(2, round(1.0 / fraction))
    block = np.floor(time / block_s).astype(int)
    return (time >= 0.0) & (block % every == every - 1)


@dataclass(frozen=True)
class Errors:
    """Differences of two profiles over the contact window."""

    nmae: float
    """Mean absolute error over the mean measured force [-]."""
    mae_n: float
    peak_error_n: float
    """Largest simulated minus largest measured force [N]."""


def errors(simulated: Array, measured: Array, use: NDArray[np.bool_], mean_force: float) -> Errors:
    """Errors over the samples in use; profiles [N], shape [sample_count]."""
    mae = float(np.abs(simulated - measured)[use].mean())
    return Errors(mae / mean_force, mae, float(simulated[use].max() - measured[use].max()))


def contact_impulse(result: Result) -> Array:
    """Impulse that the knife gave each spring's two edges over the run [N s], shape [spring_count].

    Replays the kept states of a differentiable run; one force evaluation per step.
    """
    tape = result.tape
    assert tape is not None
    system = tape.system
    count = system.model.spring_count
    total = np.zeros(count)
    for n in range(len(tape.states) - 2):
        x_n, x = tape.states[n + 1], tape.states[n + 2]
        system.begin(x_n, x, tape.stiffness[n], tape.poses[n], tape.poses[n + 1])
        system.gradient(x)
        force = system.normal_force.numpy() + system.friction_force.numpy()
        size = np.linalg.norm(force, axis=1)
        total += system.dt * (size[:count] + size[count:])
    return total
