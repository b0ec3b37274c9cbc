"""One call of the mesher, in a process of its own: `python -m stages.tetrahedralize.mesher_process PARENT_ID`.

Alone, because fTetWild keeps random state from call to call that can't be reset, so only the first call of a process
depends on nothing but its input and the seed. It reads and writes in the working directory, where the mesher also
leaves a file of its own (__tracked_surface.stl).
"""

import sys

import numpy as np

from stages.runtime.guard import die_with_parent
from stages.tetrahedralize.seeded_random import SeededRandom, UnseededError

INPUT, OUTPUT = "input.npz", "output.npz"


def main() -> None:
    """From INPUT (arguments of the mesher and `seed`) to OUTPUT: `refusal`, or `nodes`, `tets` and `unseeded`."""
    die_with_parent(int(sys.argv[1]))
    with np.load(INPUT) as file:
        arguments = {name: value if value.ndim else value.item() for name, value in file.items()}
    seed = arguments.pop("seed")
    random, unseeded = None, ""
    try:
        random = SeededRandom()
    except UnseededError as error:
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
    except UnseededError as error:
        unseeded = str(error)
    np.savez(OUTPUT, nodes=nodes, tets=tets, unseeded=unseeded)


if __name__ == "__main__":
    main()
