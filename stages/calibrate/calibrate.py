"""calibrate: fit the simulator's parameters to the recorded cut."""

import numpy as np

from disect_sim.model import Model
from disect_sim.parameters import MATERIALS
from disect_sim.processes import limit_torch_to_one_thread
from stages.calibrate.calibrate_picture import calibrate_picture, no_log_picture
from stages.calibrate.calibrate_report import (
    band_table,
    body_table,
    bound_table,
    history_table,
    metrics,
    nominal_metrics,
    parameter_table,
    profile_table,
    sample_table,
    scalar_table,
    spring_table,
)
from stages.calibrate.calibration import Calibration, calibrate, check_names
from stages.calibrate.description import CalibrateParams
from stages.calibrate.material.discrepancy import left_over_table
from stages.calibrate.material.fit import material_unknowns
from stages.calibrate.material.posterior import (
    Posterior,
    before_any_log,
    draw_table,
    posterior_table,
    share_table,
)
from stages.calibrate.prediction import nominal_values
from stages.calibrate.problem import live_picture, own_logs, read_further_cuts, read_recorded_cut
from stages.runtime.stage_io import StageIO
from stages.shared.cut import cutting_model, read_cut_mesh
from stages.shared.pictures import plot_text


def run(io: StageIO, params: CalibrateParams) -> dict[str, object]:
    """Read the cut mesh and the force log, fit, write parameters, history, profile and the picture."""
    limit_torch_to_one_thread()
    io.progress(0.0, "read the cut mesh and the log")
    check_names(params)
    model = cutting_model(read_cut_mesh(io.read), MATERIALS[io.scan.material], params.cut)
    io.write("calibrate/bounds", bound_table(params))
    table = io.read("ingest/force")
    cut = read_recorded_cut(table)
    if cut is None:
        return _without_log(io, model, params)
    more = read_further_cuts(io.read("ingest/further")) if params.fit == "material" else []
    fit = calibrate(
        model,
        cut,
        params,
        more=more,
        material=io.scan.material,
        own=_own(io),
        scan_dir=io.scan_dir,
        key=io.work_key,
        progress=lambda fraction, text: io.progress(0.02 + 0.93 * fraction, text),
        show=lambda problem, text: io.show(lambda: live_picture(problem, text)),
    )
    figures = metrics(fit, params)
    _write(io, model, fit, params)
    io.progress(0.97, "draw the picture")
    io.write_png("calibrate/preview", calibrate_picture(fit, figures))
    io.progress(1.0, "done")
    return figures


def _own(io: StageIO) -> list[str]:
    """Return the names of the scan's own entries in the library: its name, and the digests of its logs."""
    return [io.scan.id, *own_logs(io.notes)]


def _write(io: StageIO, model: Model, fit: Calibration, params: CalibrateParams) -> None:
    profile, history = profile_table(fit), history_table(fit.history)
    io.write(
        "calibrate/parameters",
        parameter_table(model, fit.values, gradient_norm=fit.gradient_norm, touched_ns=fit.impulse),
    )
    io.write("calibrate/scalars", scalar_table(fit))
    _write_posterior(io, None if fit.material is None else fit.material.posterior, params)
    io.write("calibrate/left_over", left_over_table([] if fit.material is None else fit.material.left_over))
    io.write("calibrate/spring_posterior", spring_table(fit.springs, params.cut.damage_law))
    io.write("calibrate/samples", sample_table(fit.material))
    io.write("calibrate/band", band_table(fit))
    io.write(
        "calibrate/body",
        body_table({name: np.asarray(value) for name, value in params.start.items()} | fit.values),
    )
    io.write("calibrate/history", history)
    io.write("calibrate/profile", profile)
    io.write_plot("calibrate/profile_plot", plot_text(profile, ["time_s", "measured_n", "simulated_n"]))
    io.write_plot("calibrate/history_plot", plot_text(history, ["step", "best_loss", "nmae"]))


def _write_posterior(io: StageIO, posterior: Posterior | None, params: CalibrateParams) -> None:
    io.write("calibrate/posterior", posterior_table(posterior))
    io.write("calibrate/draws", draw_table(posterior, params.draws, params.seed))
    io.write("calibrate/shares", share_table(posterior, params.seed + 1))


def _without_log(io: StageIO, model: Model, params: CalibrateParams) -> dict[str, object]:
    """Write the prior median of the material, or the start values, for a scan without a log.

    All results of a fit are empty.
    """
    untouched = np.zeros(model.spring_count)
    values = nominal_values(params, io.scan.material, leave_out=_own(io))
    posterior = None
    if params.fit == "material":
        posterior = before_any_log(material_unknowns(io.scan.material, params, cuts=0, leave_out=_own(io)))
    io.write(
        "calibrate/parameters",
        parameter_table(model, values, gradient_norm=untouched, touched_ns=untouched),
    )
    io.write("calibrate/scalars", scalar_table(None))
    _write_posterior(io, posterior, params)
    io.write("calibrate/left_over", left_over_table([]))
    io.write("calibrate/spring_posterior", spring_table({}, params.cut.damage_law))
    io.write("calibrate/samples", sample_table(None))
    io.write("calibrate/band", band_table(None))
    io.write("calibrate/body", body_table(values))
    profile, history = profile_table(None), history_table([])
    io.write("calibrate/history", history)
    io.write("calibrate/profile", profile)
    io.write_plot("calibrate/profile_plot", plot_text(profile, ["time_s", "measured_n", "simulated_n"]))
    io.write_plot("calibrate/history_plot", plot_text(history, ["step", "best_loss", "nmae"]))
    io.write_png("calibrate/preview", no_log_picture(model, values))
    return nominal_metrics()
