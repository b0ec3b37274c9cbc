"""Work on single cuts of a scan: add to the library, predict another log, design the most informative first cut."""

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from pipelines.project import Project, known_scans
from pipelines.scans import register
from pipelines.workspace import resolved_knife
from stages.runtime.errors import InputError, did_you_mean
from stages.runtime.scan_file import PARAMS_FILE_NAME, SCAN_FILE_NAME, read_scan_file

# Library.


FOLDER = Path("stages/shared/library/cuts")
"""Folder of the library in the project."""
_WORST_NMAE = 0.15
"""Largest fit error (NMAE) of an entry."""


def add_cut(project: Project, scan: str) -> dict[str, Any]:
    """Add the scan's calibrated cut to the library of its material, replacing its earlier entry, and return it."""
    from stages.calibrate.material.posterior import what_the_log_says
    from stages.calibrate.problem import own_logs
    from stages.runtime.artifacts import read_metrics, read_notes, read_table
    from stages.runtime.files import write_bytes_atomic
    from stages.runtime.params import load_params

    known_scans(project, [scan])
    scan_dir = project.scan_dir(scan)
    identity = read_scan_file(scan_dir)
    figures_file = scan_dir / "calibrate" / "metrics.json"
    if identity.log is None or not figures_file.is_file():
        raise InputError(
            f"{scan} has no calibrated cut. A library entry requires a fit to a force log. Run the scan with --log "
            "first."
        )
    figures = read_metrics(figures_file)
    params = load_params(project.root / PARAMS_FILE_NAME, scan_dir / SCAN_FILE_NAME)
    posterior = read_table(scan_dir, "calibrate/posterior")
    if not len(posterior):
        raise InputError(
            f"{scan} was calibrated per spring. The library contains material fits. Run it with calibrate.fit=material."
        )
    if not figures["nmae"] <= _WORST_NMAE:
        raise InputError(
            f"{scan}: the fit error is {100 * figures['nmae']:.1f} %. A library entry requires at most "
            f"{100 * _WORST_NMAE:.0f} %. See the scan's report."
        )
    entry = {
        "name": scan,
        "source": f"calibrated on {identity.log} by scan2cut",
        "logs": own_logs(partial(read_notes, scan_dir)),
        "damage_law": params.cut.damage_law,
        "boundary": params.cut.boundary,
        "knife": params.cut.knife_label,
        "nmae": round(figures["nmae"], 4),
        "values": what_the_log_says(posterior),
    }
    _refuse_known_logs(project, entry)
    path = (project.root / FOLDER).resolve() / f"{identity.material}.json"  # a workspace's folder is a link
    others = [cut for cut in json.loads(path.read_text(encoding="utf-8"))["cuts"] if cut["name"] != scan]
    write_bytes_atomic(path, library_text([*others, entry]).encode())
    return {"material": identity.material, "cuts": len(others) + 1, "file": str(path), "entry": entry}


def _refuse_known_logs(project: Project, entry: dict[str, Any]) -> None:
    """Refuse an entry whose log is in the library already, under whatever name and material."""
    for material, cut in library_cuts(project):
        if cut["name"] != entry["name"] and set(cut.get("logs", ())) & set(entry["logs"]):
            raise InputError(
                f"{entry['name']}: its force log is in the library already, as {cut['name']} ({material}). A log "
                f"counts once. Remove the other entry first: `scan2cut library remove {cut['name']}`."
            )


def library_cuts(project: Project) -> list[tuple[str, dict[str, Any]]]:
    """Return the entries of the library with their materials."""
    return [
        (path.stem, cut)
        for path in sorted((project.root / FOLDER).glob("*.json"))
        for cut in json.loads(path.read_text(encoding="utf-8"))["cuts"]
    ]


def library_cut(project: Project, name: str) -> tuple[str, dict[str, Any]]:
    """Return an entry by its name, with its material."""
    cuts = library_cuts(project)
    for material, cut in cuts:
        if cut["name"] == name:
            return material, cut
    raise InputError(
        f"{name[:80]!r} is not in the library.{did_you_mean(name, [cut['name'] for _, cut in cuts])} Its entries: "
        f"{', '.join(cut['name'] for _, cut in cuts) or 'none'}. Choose one of them."
    )


def remove_cut(project: Project, name: str) -> dict[str, Any]:
    """Remove an entry from the library; return it with its material and file."""
    from stages.runtime.files import write_bytes_atomic

    material, entry = library_cut(project, name)
    path = (project.root / FOLDER).resolve() / f"{material}.json"
    others = [cut for each, cut in library_cuts(project) if each == material and cut["name"] != name]
    write_bytes_atomic(path, library_text(others).encode())
    return {"material": material, "cuts": len(others), "file": str(path), "entry": entry}


def library_text(cuts: list[dict[str, Any]]) -> str:
    """Return the library file's text, one line per value for readable diffs."""
    return json.dumps({"cuts": cuts}, indent=2, ensure_ascii=False) + "\n"


# Prediction.


_PREDICTION_FOLDER = "predictions"
"""Folder in the scan's directory."""


@dataclass(frozen=True)
class Place:
    """Body and cut plane of another cut."""

    half: bool = False
    """True for the half that the first cut left, standing as the stage halve stands it."""
    offset_m: float = 0.0
    """Distance of the plane from that of the scan's cut (or the half's), along x."""

    def __str__(self) -> str:
        """Return the place in words."""
        beside = f"{1e3 * self.offset_m:+g} mm beside " if self.offset_m else ""
        return f"{'the half' if self.half else 'the whole fruit'}, {beside}its cut plane"


def predict_log(
    project: Project,
    scan: str,
    log: Path,
    air: list[Path] | None = None,
    *,
    knife: str | None = None,
    place: Place = Place(),  # noqa: B008  frozen
) -> dict[str, Any]:
    """Predict another log of the scan's fruit; return the errors and the paths of table and picture.

    knife: name of the knife of that log, if it was another than that of the fitted logs.
    """
    from stages.calibrate.calibrate_picture import prediction_picture
    from stages.calibrate.prediction import predict
    from stages.calibrate.problem import own_logs
    from stages.runtime.artifacts import read_notes, read_table, write_curves
    from stages.runtime.files import sha256_of_file
    from stages.runtime.params import load_params
    from stages.runtime.stage_io import encode_png

    known_scans(project, [scan])
    scan_dir = project.scan_dir(scan)
    params = load_params(project.root / PARAMS_FILE_NAME, scan_dir / SCAN_FILE_NAME)
    prediction = predict(
        lambda name: read_table(scan_dir, name),
        read_scan_file(scan_dir).material,
        params.calibrate,
        _forces(log, params.ingest, air),
        knife=None if knife is None else resolved_knife(project.root, knife),
        mesh=_mesh_at(scan_dir, params, place),
        own=[scan, sha256_of_file(log), *own_logs(partial(read_notes, scan_dir))],
    )
    where = "_half" * place.half + f"_{1e3 * place.offset_m:+g}mm" * bool(place.offset_m)
    folder = scan_dir / _PREDICTION_FOLDER / f"{log.parent.name}_{log.stem}{where}"
    return {
        "log": str(log),
        "knife": knife or params.cut.knife_label,
        "place": str(place),
        "boundary": params.cut.boundary,
        **prediction.figures(),
        **write_curves(folder, prediction.table(), encode_png(prediction_picture(prediction))),
    }


def _forces(log: Path, params: Any, air: list[Path] | None = None) -> Any:
    """Return the force table of another log of the fruit; no-contact runs are by default those beside it."""
    from stages.ingest.ingest import force_table, ingest
    from stages.ingest.log_file import read_log

    airs = register.air_runs_beside(log) if air is None else air
    register.check_air_runs(airs)
    runs = {path.name: read_log(path, params) for path in airs}
    return force_table(ingest(read_log(log, params), params, air_runs=runs, source=log.name))


def _mesh_at(scan_dir: Path, params: Any, place: Place) -> Any:
    """Return the cut mesh of the place; None for that of the scan's first cut."""
    from stages.precut.precut import precut
    from stages.runtime.artifacts import read_table
    from stages.runtime.catalogue import ARTIFACTS
    from stages.shared.anatomy import read_anatomy
    from stages.shared.cut import read_cut_mesh
    from stages.shared.surface import Surface
    from stages.tetrahedralize.tetrahedralize import tetrahedralize

    if place == Place():
        return None
    body, cut = ("halve", "precut_half") if place.half else ("clean", "precut")
    if not (scan_dir / ARTIFACTS[f"{cut}/nodes"].path).exists():
        raise InputError(
            f"{scan_dir.name} has no {cut}. A prediction on {place} needs its mesh. Run the scan to the end first."
        )
    if not place.offset_m:
        return read_cut_mesh(lambda name: read_table(scan_dir, name), cut)
    vertices = read_table(scan_dir, f"{body}/vertices")["position_m"].to_numpy()
    low, high = vertices[:, 0].min(), vertices[:, 0].max()
    if not low < place.offset_m < high:
        raise InputError(
            f"The plane {1e3 * place.offset_m:g} mm beside the scan's cut plane misses the body, which reaches from "
            f"{1e3 * low:.1f} to {1e3 * high:.1f} mm. Give --offset-mm between these."
        )
    surface = Surface(
        vertices - [place.offset_m, 0.0, 0.0], read_table(scan_dir, f"{body}/faces")["vertices"].to_numpy()
    )
    mesh = tetrahedralize(surface, params.tetrahedralize).mesh
    anatomy = read_anatomy(lambda name: read_table(scan_dir, name), body, along_x_m=-place.offset_m)
    return replace(precut(mesh.nodes, mesh.tets, params.precut).cut, anatomy=anatomy or None)


# Core or stone.


_INSIDE_FOLDER = "inside"


def find_core(
    project: Project,
    scan: str,
    logs: list[Path],
    offsets_mm: list[float],
    turns_deg: list[float],
    *,
    kind: str | None,
    model_error: float,
) -> dict[str, Any]:
    """Find a core or stone from logs of vertical cuts; return figures, plan, setting and the paths of the files.

    offsets_mm: of each cut plane from the centre of mass; turns_deg: of the fruit about the vertical. Missing ones are
    those of the scan's own cut.
    """
    from disect_sim.parameters import MATERIALS
    from stages.calibrate.inside import (
        CutPlane,
        find_inside,
        inside_picture,
        inside_prior,
        look_from_log,
        plan_next,
        region_setting,
        simulate_cut,
    )
    from stages.runtime.artifacts import read_notes, read_table
    from stages.runtime.files import write_bytes_atomic
    from stages.runtime.params import load_params
    from stages.runtime.stage_io import encode_png
    from stages.shared.anatomy import FRAME
    from stages.shared.surface import read_body

    known_scans(project, [scan])
    if max(len(offsets_mm), len(turns_deg)) > len(logs):
        raise InputError(
            f"core: {len(logs)} logs, {len(offsets_mm)} offsets, {len(turns_deg)} turns. Each belongs to one log, in "
            "the same order. Give a --log for each."
        )
    scan_dir = project.scan_dir(scan)
    _check_meshed(scan, scan_dir, "core")
    params = load_params(project.root / PARAMS_FILE_NAME, scan_dir / SCAN_FILE_NAME)
    material = read_scan_file(scan_dir).material
    body = read_body(lambda name: read_table(scan_dir, name))
    nodes = read_table(scan_dir, "tetrahedralize/nodes")["position_m"].to_numpy()
    tets = read_table(scan_dir, "tetrahedralize/tets")["nodes"].to_numpy()
    values = params.cut.nominal_parameters(material)
    prior = inside_prior(material, kind, body.centre_m, body.extent_m, body.volume_m3)
    looks = []
    for number, log in enumerate(logs):
        offset_mm = offsets_mm[number] if number < len(offsets_mm) else 1e3 * params.clean.cut_offset_m
        turn_deg = turns_deg[number] if number < len(turns_deg) else 0.0
        plane = CutPlane.turned(body.centre_m, 1e-3 * offset_mm, turn_deg)
        flesh = simulate_cut(nodes, tets, plane, MATERIALS[material], params.cut, values)
        looks.append(
            look_from_log(
                _forces(log, params.ingest),
                plane,
                flesh,
                values,
                top_m=body.extent_m[1],
                noise_n=params.calibrate.force_uncertainty_n,
                align=params.calibrate.align == "contact",
            )
        )
    inside = find_inside(looks, prior, material, model_error=model_error)
    plan = plan_next(inside, body.centre_m, body.extent_m)
    folder = scan_dir / _INSIDE_FOLDER
    folder.mkdir(exist_ok=True)
    frame = json.loads(read_notes(scan_dir, "clean/regions")[FRAME])
    found = {
        "scan": scan,
        "logs": [str(log) for log in logs],
        **inside.figures(),
        "plan": plan,
        "region": region_setting(inside, frame),
        "picture": str(folder / "inside.png"),
        "file": str(folder / "inside.json"),
    }
    write_bytes_atomic(folder / "inside.png", encode_png(inside_picture(inside, looks, plan, body.centre_m)))
    write_bytes_atomic(folder / "inside.json", json.dumps(found, indent=2).encode())
    return found


# Probe: design of the first cut.


_PROBE_FOLDER = "probe"
"""Folder in the scan's directory."""
_OF_A_PROBE = ("motion.parquet", "probe.png")
"""Files of that folder beside those of an export."""
_NEEDED = ("clean/vertices", "clean/faces", "precut/nodes", "precut/springs")
"""Artifacts from which a first cut is designed."""

_Progress = Callable[[float, str], None]


@dataclass(frozen=True)
class Design:
    """Candidate first cuts simulated with the prior material, and the uncertainty of the saving after each."""

    params: Any
    model: Any
    unknowns: Any
    values: Any
    """Simulator parameters of the prior material."""
    cuts: list[Any]
    """Candidate cuts, the vertical one first."""
    least: Any
    """The cut with the least force; its saving is the quantity of interest."""
    before: float
    """Half-width of the saving's 90 % interval before any log [-]."""
    bands: dict[str, float]
    """The same after the log of each cut, by name."""

    @property
    def ranked(self) -> list[Any]:
        """Return the cuts, the most informative first."""
        return sorted(self.cuts, key=lambda cut: self.bands[cut.name])


def design(project: Project, scan: str, candidates: int, progress: _Progress) -> Design:
    """Simulate candidate first cuts and compute the uncertainty of the saving after the log of each."""
    from disect_sim.parameters import MATERIALS
    from stages.calibrate.material.fit import material_unknowns
    from stages.calibrate.prediction import (
        PlannedLog,
        covariances,
        deviation,
        expected_parameters,
        saving_slope,
    )
    from stages.optimize.first_cuts import first_cuts
    from stages.runtime.artifacts import read_table
    from stages.runtime.params import load_params
    from stages.shared.cut import check_clear_of_rigid, cutting_model, read_cut_mesh
    from stages.shared.library.library import NINETY

    known_scans(project, [scan])
    scan_dir = project.scan_dir(scan)
    _check_meshed(scan, scan_dir)
    params = load_params(project.root / PARAMS_FILE_NAME, scan_dir / SCAN_FILE_NAME)
    material = read_scan_file(scan_dir).material
    mesh = read_cut_mesh(lambda name: read_table(scan_dir, name))
    model = cutting_model(mesh, MATERIALS[material], params.cut)
    unknowns = material_unknowns(material, params.calibrate, leave_out=[scan])
    values = expected_parameters(unknowns)
    lowest = params.cut.board_clearance_m
    check_clear_of_rigid(model, values, params.cut, lowest_m=lowest, offset="clean.cut_offset_m")
    cuts = first_cuts(
        model, values, params.optimize, candidates, lambda share: progress(0.2 * share, "simulate first cuts")
    )
    least = min(cuts, key=lambda cut: cut.motion.mean_n())
    slope = saving_slope(unknowns, cuts[0].sensitivity(), least.sensitivity())
    logs = [PlannedLog(cut.table(), model, unknowns, params.calibrate) for cut in cuts]
    after = covariances(
        logs, lambda done: progress(0.2 + 0.5 * done / len(logs), "compute the information of each log")
    )
    bands = {
        cut.name: NINETY * deviation(slope, posterior) for cut, posterior in zip(cuts, after, strict=True)
    }
    return Design(params, model, unknowns, values, cuts, least, NINETY * deviation(slope), bands)


def probe(project: Project, scan: str, candidates: int, progress: _Progress) -> dict[str, Any]:
    """Design, certify and export the most informative first cut; return the uncertainties and the folder."""
    designed = design(project, scan, candidates, progress)
    scan_dir, vertical = project.scan_dir(scan), designed.cuts[0]
    chosen, exported = _exported(scan_dir, designed, progress)
    _write_picture(scan_dir, designed, chosen)
    return {
        "saving": 1.0 - designed.least.motion.mean_n() / vertical.motion.mean_n(),
        "saving_of": designed.least.name,
        "band_before": designed.before,
        "band_after_vertical": designed.bands[vertical.name],
        "band_after_chosen": designed.bands[chosen.name],
        "chosen": chosen.name,
        "cuts": [
            {
                "name": cut.name,
                "drawn_m": cut.drawn_m,
                "mean_force_n": cut.motion.mean_n(),
                "band": designed.bands[cut.name],
            }
            for cut in designed.ranked
        ],
        **exported,
    }


def _check_meshed(scan: str, scan_dir: Path, command: str = "probe") -> None:
    from stages.runtime.catalogue import ARTIFACTS

    missing = [name for name in _NEEDED if not (scan_dir / ARTIFACTS[name].path).exists()]
    if missing:
        raise InputError(
            f"{command}: {scan} has no {missing[0]}. It requires the scan's cut mesh. Run "
            f"`scan2cut run {scan} --target precut` first."
        )


def _exported(scan_dir: Path, designed: Design, progress: _Progress) -> tuple[Any, dict[str, Any]]:
    """Export the best cut that can be certified (else the best one, refused); return it with verdict and folder."""
    from stages.export.export_files import rescue_others, walk
    from stages.optimize.first_cuts import to_execute
    from stages.runtime.artifacts import read_table
    from stages.runtime.catalogue import ARTIFACTS

    identity, ranked = read_scan_file(scan_dir), designed.ranked
    model, values, params = designed.model, designed.values, designed.params
    body = (read_table(scan_dir, _NEEDED[0]), read_table(scan_dir, _NEEDED[1]))
    chain = walk(
        scan_dir,
        tuple(ARTIFACTS[name].path for name in _NEEDED),
        root=identity.scan,
        stages=("clean", "tetrahedralize", "precut"),
    )
    scratch = scan_dir / f".scratch-{_PROBE_FOLDER}"
    shutil.rmtree(scratch, ignore_errors=True)
    tried = []
    for number, cut in enumerate(ranked):
        progress(0.7 + 0.3 * number / len(ranked), f"certify {cut.name}")
        motion = to_execute(cut, model, values, params.optimize)
        attempt = scratch / str(number)
        attempt.mkdir(parents=True)
        motion.write_parquet(attempt / "motion.parquet")
        made = export_simulated(
            attempt, motion, model, values, body, chain, params, scan_id=identity.id, force_calibrated=False
        )
        tried.append((cut, attempt, made))
        if made.certificate.certified:
            break
    cut, attempt, made = tried[-1] if tried[-1][2].certificate.certified else tried[0]
    folder = scan_dir / _PROBE_FOLDER
    rescue_others(scan_dir, folder, _OF_A_PROBE)
    shutil.rmtree(folder, ignore_errors=True)
    attempt.replace(folder)
    shutil.rmtree(scratch)
    return cut, {
        "certified": made.certificate.certified,
        "verdict": made.certificate.verdict,
        "folder": str(folder / made.folder.name),
    }


def export_simulated(
    parent: Path,
    motion: Any,
    model: Any,
    values: Any,
    body: tuple[Any, Any],
    chain: Any,
    params: Any,
    *,
    scan_id: str,
    force_calibrated: bool,
) -> Any:
    """Simulate a motion (columns of optimize/motion) to its end, and export and certify it below `parent`."""
    from stages.export.demand import parting_of
    from stages.export.export import export
    from stages.replay.replay import frame_table, record, spring_table

    recording = record(model.mesh, model.material, motion, values, params.replay)
    parting = parting_of(
        frame_table(recording), spring_table(recording), recording.result.statistics.inverted_tets
    )
    return export(
        parent,
        motion,
        body,
        parting,
        chain,
        params.export,
        knife=params.cut.knife_label,
        scan_id=scan_id,
        force_calibrated=force_calibrated,
    )


def _write_picture(scan_dir: Path, designed: Design, chosen: Any) -> None:
    from stages.optimize.first_cuts import first_cuts_picture
    from stages.runtime.files import write_bytes_atomic
    from stages.runtime.stage_io import encode_png

    png = encode_png(first_cuts_picture(designed.model.mesh, chosen, designed.bands, designed.before))
    write_bytes_atomic(scan_dir / _PROBE_FOLDER / "probe.png", png)
