"""Runs the public scans through the whole pipeline without a log and prints one table of outcomes.

    python -m lab.real_logs.run_scans [NAME ...]     all of them without a name; results in build/run_scans.json

No force log of these fruits exists, so every force is an estimate from the material's priors. A fruit without a
material of its own takes a similar one, named in the table. Runs in the project of the working folder.
"""

import json
import subprocess
import sys
import time
from pathlib import Path

from lab.real_logs.real_data import real_file

SCANS: dict[str, tuple[tuple[str, ...], str, tuple[str, ...]]] = {
    "banana": (("scans", "011_banana_google16k_nontextured.ply"), "banana", ()),
    "pear": (("scans", "016_pear_google16k_nontextured.ply"), "apple", ()),
    "lemon": (("scans", "014_lemon_google16k_nontextured.ply"), "tomato", ()),
    "tomato": (("scans", "sliceit_tomato.stl"), "tomato", ("clean.unit=mm",)),
    "cucumber": (("scans", "sliceit_cucumber.stl"), "cucumber", ("clean.unit=mm",)),
    "pepper": (("meshes", "drake_bell_pepper.vtk"), "tomato", ()),
}
"""Name → file, material, settings."""
RESULTS = Path("build/run_scans.json")


def scan_file(parts: tuple[str, ...]) -> Path:
    """The scan as a file that scan2cut reads: of a tet mesh its surface."""
    path = real_file(*parts)
    if path.suffix != ".vtk":
        return path
    import pyvista

    out = Path("build") / f"{path.stem}.ply"
    out.parent.mkdir(exist_ok=True)
    pyvista.read(path).extract_surface().triangulate().save(out)
    return out


def run(name: str) -> dict[str, object]:
    """Run one scan and return what it says."""
    parts, material, settings = SCANS[name]
    options = [word for setting in settings for word in ("--set", setting)]
    command = ["run", str(scan_file(parts)), "--id", name, "--material", material, "--json", *options]
    begun = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-m", "pipelines.cli.main", *command], capture_output=True, text=True, check=False
    )
    try:
        said = json.loads(done.stdout)
    except ValueError:
        said = {"error": (done.stderr or done.stdout)[-300:], "stages": []}
    figures = {stage["name"]: stage["metrics"] for stage in said["stages"]}
    body, found, sent = (figures.get(stage, {}) for stage in ("clean", "optimize", "export"))
    return {
        "material": material,
        "volume_cm3": 1e6 * body.get("volume_m3", float("nan")),
        "tets": figures.get("tetrahedralize", {}).get("tets"),
        "parted": figures.get("replay", {}).get("reached_fraction"),
        "inverted": figures.get("replay", {}).get("inverted_tets"),
        "vertical_n": found.get("mean_force_vertical_n"),
        "mean_n": found.get("mean_force_optimized_n"),
        "saving": found.get("reduction"),
        "certified": sent.get("certified"),
        "exit": done.returncode,
        "said": said.get("error") or said.get("refused") or "; ".join(said.get("warnings", ())),
        "seconds": time.monotonic() - begun,
    }


def main() -> None:
    """Run the named scans, or all, and print the table."""
    names = sys.argv[1:] or list(SCANS)
    rows = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    for name in names:
        rows[name] = run(name)
        RESULTS.parent.mkdir(exist_ok=True)
        RESULTS.write_text(json.dumps(rows, indent=2) + "\n")
        print(name, json.dumps(rows[name]), flush=True)


if __name__ == "__main__":
    main()
