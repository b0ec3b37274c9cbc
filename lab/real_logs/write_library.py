"""Writes the shipped entries of the library of calibrated cuts from the fits of real logs.

    python -m lab.real_logs.write_library

Run it after `python -m lab.real_logs.predict_real_logs`, whose results in build/predictions it reads. Second cuts are
kept out: they are what predictions are tested on. Entries of other names stay.
"""

import json
import sys

from lab.real_logs.fit_real_logs import CASES, log_file
from lab.real_logs.predict_real_logs import BOUNDARIES, ENTRIES, RESULTS
from pipelines.scans.cuts import library_text
from stages.runtime.files import sha256_of_file
from stages.shared.library.library import FOLDER

PANDA = "straight cut by a Franka Panda, public log eric-heiden/panda-force ({name})"
PAPER = "straight cut of a real apple, force read from the video of the paper DiSECt"
FITTED = "fitted on a primitive as high as the log's contact height; values only"


def main() -> None:
    """Write them."""
    for name, entry_name in ENTRIES.items():
        case, folder = CASES[name], RESULTS / name
        found = json.loads((folder / f"{BOUNDARIES[0]}.json").read_text())
        entry = {
            "name": entry_name,
            "source": f"{PAPER if name == 'real_apple' else PANDA.format(name=name)}, {FITTED}",
            "logs": [sha256_of_file(log_file(name))],
            "damage_law": "edge",
            "boundary": BOUNDARIES[0],
            "knife": case.knife,
            "nmae": round(found["fit"], 4),
            "values": json.loads((folder / "entry.json").read_text()),
        }
        path = FOLDER / f"{case.material}.json"
        others = [cut for cut in json.loads(path.read_text())["cuts"] if cut["name"] != entry["name"]]
        path.write_text(library_text([entry, *others]))
        sys.stdout.write(f"{path.name}: {entry['values']}\n")


if __name__ == "__main__":
    main()
