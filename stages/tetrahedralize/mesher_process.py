"""One call of the mesher in a separate process: `python -m stages.tetrahedralize.mesher_process PARENT_ID`.

fTetWild keeps random state from call to call that can't be reset, so only the first call of a process depends on
nothing but its input and the seed. It reads and writes in the working directory, where the mesher also leaves a file of
its own (__tracked_surface.stl).
"""

import ctypes
import sys
from importlib.util import find_spec

import numpy as np

from stages.runtime.errors import die_with_parent

# Seeding: loads the library built from seeded_random.c, which replaces std::random_device.
#
# `pip install` builds it (setup.py) under a separate name outside of the packages, so that a clone which runs with this
# environment finds it too (`scan2cut reproduce`, workers of a cluster).


_LIBRARY = "scan2cut_seeded_random"
"""Located like a module, because it is installed like one; never imported."""


class _UnseededError(RuntimeError):
    """The mesher's random numbers can't be seeded; the message says why."""


class _SeededRandom:
    """The library, loaded before libstdc++; must be created before pytetwild is imported."""

    def __init__(self) -> None:
        spec = find_spec(_LIBRARY)
        if spec is None or spec.origin is None:
            raise _UnseededError(f"the library {_LIBRARY} was not built")
        try:
            library = ctypes.CDLL(spec.origin, mode=ctypes.RTLD_GLOBAL)
            self._seed, self._draws = library.scan2cut_seed, library.scan2cut_draws
        except (OSError, AttributeError) as error:
            raise _UnseededError(f"{spec.origin} can't be loaded ({error})") from error
        self._seed.argtypes, self._seed.restype = [ctypes.c_uint64], None
        self._draws.argtypes, self._draws.restype = [], ctypes.c_uint64

    def seed(self, seed: int) -> None:
        """Start the sequence of this seed."""
        self._seed(seed)

    def check_used(self) -> None:
        """Raise _UnseededError if nothing was drawn since the last seed: the mesher then uses another source."""
        if self._draws() == 0:
            raise _UnseededError(f"the mesher does not draw from {_LIBRARY}; it must use GNU's libstdc++")


INPUT, OUTPUT = "input.npz", "output.npz"


def main() -> None:
    """Read INPUT (arguments of the mesher and `seed`), write OUTPUT: `refusal`, or `nodes`, `tets` and `unseeded`."""
    die_with_parent(int(sys.argv[1]))
    with np.load(INPUT) as file:
        arguments = {name: value if value.ndim else value.item() for name, value in file.items()}
    seed = arguments.pop("seed")
    random, unseeded = None, ""
    try:
        random = _SeededRandom()
    except _UnseededError as error:
        unseeded = str(error)

    import pytetwild

    if random is not None:
        random.seed(seed)
    try:
        nodes, tets = pytetwild.tetrahedralize(**arguments)
    except RuntimeError as error:
        np.savez(OUTPUT, refusal=str(error))
        return
    try:
        if random is not None:
            random.check_used()
    except _UnseededError as error:
        unseeded = str(error)
    np.savez(OUTPUT, nodes=nodes, tets=tets, unseeded=unseeded)


if __name__ == "__main__":
    main()
