"""scan2cut from Python: results of scans as typed tables, cuts, pictures. docs/notebook.ipynb shows it.

import scan2cut
apple = scan2cut.Scan("synthetic_apple")
apple.table("calibrate/profile")
scan2cut.plot_force({"nominal": apple.cut().force})
"""

from pipelines.notebook import Cut, Scan, plot_body, plot_force, replay, scans
from stages.runtime.errors import InputError

__all__ = ["Scan", "Cut", "scans", "plot_force", "plot_body", "replay", "InputError"]
