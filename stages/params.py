"""The parameters of every stage: one frozen model per section of params.yaml.

Values live only in params.yaml; a scan's scan.yaml may override them section by section.
None marks an optional override that is off unless someone gives it.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic_core import ErrorDetails

from disect_sim.errors import InputError
from stages.support.yaml_file import read_mapping

Positive = Annotated[float, Field(gt=0)]
Fraction = Annotated[float, Field(gt=0, le=1)]
EdgeLength = Annotated[float, Field(ge=2e-4, le=0.1)]
Vector = tuple[float, float, float]


class StageParams(BaseModel):
    """Common rules: nothing unknown, nothing changed after loading, no NaN or infinity."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class CleanParams(StageParams):
    """clean: from the raw scan to a watertight surface in the cutting frame."""

    unit: Literal["auto", "m", "cm", "mm", "in"]
    scale: Positive | None = None
    """Metres per unit of the scan; overrides `unit`."""
    min_component_fraction: Fraction
    target_edge_m: EdgeLength
    smooth_iterations: Annotated[int, Field(ge=0, le=100)]
    max_displacement_fraction: Fraction
    max_faces: Annotated[int, Field(ge=100)]
    max_bytes: Annotated[int, Field(ge=100)]
    """Of the scan's file; larger ones are refused before they are read or copied."""
    max_filled_fraction: Annotated[float, Field(ge=0, le=1)]
    """Part of the clean surface's area that may be invented where the scan saw nothing."""
    orientation: Literal["auto", "y_up", "z_up"]
    rotation_deg: Vector | None = None
    """Turns about the scan's x, y, z axis in this order; y is then up. Overrides `orientation`."""
    turn_deg: Annotated[float, Field(ge=-360, le=360)]
    cut_offset_m: Annotated[float, Field(ge=-1, le=1)]


class IngestParams(StageParams):
    """ingest: from a robot's log to the force on the knife's edge."""

    columns: dict[str, str | list[str]]
    """For tables: what is in which column. For ROS recordings: the topics of force, pose and joints."""
    sample_rate_hz: Positive | None = None
    """Of a table without a time column."""
    time_unit: Literal["auto", "s", "ms", "us", "ns"]
    length_unit: Literal["m", "cm", "mm"]
    force_unit: Literal["N", "mN", "kN"]
    force_is: Literal["auto", "exerted", "on_knife"]
    """Whether the log has the force that the robot exerts or the one on the knife."""
    allow_pickle: bool
    max_bytes: Annotated[int, Field(ge=1000)]
    min_rate_hz: Positive
    max_gap_s: Positive
    up_axis: Literal["x", "y", "z", "-x", "-y", "-z"]
    blade_axis: Literal["x", "y", "z", "-x", "-y", "-z"]
    edge_offset_m: Vector
    """From the end effector to the middle of the edge, in the end effector's frame."""
    board_height_m: float | None = None
    """Of the board above the robot's base, along up_axis."""
    board_clearance_m: Annotated[float, Field(ge=0, le=0.1)]
    """Height of the edge above the board at its lowest, where board_height_m is not known."""
    tare: Literal["auto", "air", "window"]
    tare_window_s: Annotated[float, Field(ge=0.02, le=10)]
    filter_cutoff_hz: Positive
    onset_force_n: Positive
    repeatability_n: Annotated[float, Field(ge=0)]
    scale_error_fraction: Annotated[float, Field(ge=0, le=1)]


class TetrahedralizeParams(StageParams):
    """tetrahedralize: from the surface to a tetrahedral mesh, finer near the cut plane."""

    edge_m: EdgeLength
    cut_edge_m: EdgeLength
    cut_band_m: Annotated[float, Field(ge=0, le=1)]
    epsilon_m: Annotated[float, Field(gt=0, le=0.01)]
    threads: Annotated[int, Field(ge=1, le=256)]
    seed: Annotated[int, Field(ge=0, lt=2**32)]
    """Of the mesher's random numbers."""
    max_volume_error_fraction: Fraction


class PrecutParams(StageParams):
    """precut: the virtual node algorithm along the cutting surface."""

    plane_point_m: Vector
    plane_normal: Vector
    surface_file: str | None = None
    """A triangle mesh in the scan's directory that replaces the plane."""
    snap_tolerance_fraction: Annotated[float, Field(ge=1e-4, le=0.2)]
    """How near to its ends an edge may be cut, as a fraction of its length."""


class CuttingParams(StageParams):
    """What cuts, how the body is held, and how its springs weaken."""

    knife: Literal["kitchen", "slicing", "folding"]
    boundary: Literal["held", "glued", "free"]
    damage_law: Literal["force", "stretch"]


class StraightCutParams(CuttingParams):
    """A straight vertical cut from above the fruit to the board."""

    speed_m_s: Annotated[float, Field(gt=0, le=1)]
    start_clearance_m: Annotated[float, Field(ge=0, le=0.1)]
    """Height of the knife's edge above the fruit's top at the start."""
    board_clearance_m: Annotated[float, Field(ge=0, le=0.1)]
    """Height of the knife's edge above the board at the end."""
    dt_s: Annotated[float, Field(ge=1e-5, le=0.01)]
    force_limit_n: Positive


class SimulateParams(StraightCutParams):
    """simulate: a straight cut with nominal parameters."""

    sample_rate_hz: Annotated[float, Field(ge=1, le=10_000)]
    parameters: dict[str, float]
    """Spring, contact and material parameters of the simulator; the stage checks names and ranges."""


class CalibrateParams(CuttingParams):
    """calibrate: parameters of the simulator from a recorded cut."""

    dt_s: Annotated[float, Field(ge=1e-4, le=0.01)]
    rate_hz: Annotated[float, Field(ge=50, le=10_000)]
    """Sampling of the compared profiles."""
    low_pass_hz: Positive
    """Cutoff of the zero-phase low-pass that both profiles go through."""
    force_limit_n: Positive
    onset_n: Positive
    """Contact begins where the filtered force passes this."""
    align: Literal["contact", "recorded"]
    """contact: the knife meets the scan's top at contact onset; recorded: the log's heights are the scan's."""
    offset_range_m: Annotated[float, Field(gt=0, le=0.02)]
    """How far the fit may move the recorded heights."""
    start_clearance_m: Annotated[float, Field(gt=0, le=0.05)]
    """Simulation starts with the knife this far above the body."""
    board_clearance_m: Annotated[float, Field(ge=0, le=0.1)]
    start: dict[str, float]
    """Spring, contact and material parameters at the start; those that are not fitted stay there."""
    bounds: dict[str, tuple[float, float]]
    """Name → [low, high], in place of the simulator's own."""
    shared: tuple[str, ...]
    individual: tuple[str, ...]
    shared_optimiser: Literal["gauss_newton", "lbfgs", "adam"]
    individual_optimiser: Literal["lbfgs", "adam"]
    shared_loss: Literal["l1", "l2", "pseudo_huber", "inverse_cosine", "log_sum_exp"]
    loss: Literal["l1", "l2", "pseudo_huber", "inverse_cosine", "log_sum_exp"]
    shared_iterations: Annotated[int, Field(ge=1, le=10_000)]
    individual_iterations: Annotated[int, Field(ge=0, le=10_000)]
    learning_rate: Annotated[float, Field(gt=0, le=10)]
    smoothness: Annotated[float, Field(ge=0)]
    neighbours: Annotated[int, Field(ge=1, le=50)]
    tolerance: Annotated[float, Field(gt=0, lt=1)]
    patience: Annotated[int, Field(ge=1, le=1000)]
    puncture_weight: Annotated[int, Field(ge=1, le=100)]
    """How many times samples within 50 ms of the measured puncture count in the loss."""
    hold_out_fraction: Annotated[float, Field(ge=0, le=0.5)]
    hold_out_block_s: Positive
    starts: Annotated[int, Field(ge=1, le=100)]
    start_spread: Annotated[float, Field(ge=0, le=5)]
    processes: Annotated[int, Field(ge=1, le=256)]
    seed: int


class HalveParams(StageParams):
    """halve: one half-body of the first cut, laid on the board for the second."""

    half: Literal["positive", "negative"]
    rests_on: Literal["cut_face", "as_it_was"]
    """cut_face: the first cut's flat face is down; as_it_was: the half stands as it did before the cut."""
    angle_deg: Annotated[float, Field(ge=-360, le=360)]
    """Turn about the vertical. At 0 the fruit's former vertical lies along the blade, if the half lies on its cut
    face; otherwise the second cut is parallel to the frame of the first."""
    offset_m: Annotated[float, Field(ge=-1, le=1)]
    """Of the second cut's plane from the half's centre of mass, along x."""


class PrecutHalfParams(PrecutParams):
    """precut_half: as precut, but always by a plane, because DVC tracks the surface file of the first cut only."""

    surface_file: None = None


class TransportParams(StraightCutParams):
    """transport: parameters of the first cut's springs, carried over to those of the second."""

    max_exact_springs: Annotated[int, Field(ge=1, le=20_000)]
    """Larger sets get the entropic plan."""
    entropy: Annotated[float, Field(ge=1e-5, le=1)]
    """Of the entropic plan, in squared widths of the unit box."""
    touched_ns: Annotated[float, Field(ge=0)]
    """A spring that got less impulse from the knife than this was not touched."""
    untouched_weight: Annotated[float, Field(gt=0, le=1)]
    """Weight of such a spring beside a touched one of the same area."""
    bare_within_m: Annotated[float, Field(ge=0, le=0.01)]
    """Surface springs this near to the first cut's face are flesh laid bare, not skin."""


class ConstraintWeight(StageParams):
    """How hard MDMM pulls on one constraint."""

    scale: Positive
    damping: Positive


class OptimizeParams(CuttingParams):
    """optimize: the slicing motion, its limits and how it is searched for."""

    dt_s: Annotated[float, Field(ge=1e-5, le=0.01)]
    mean_over: Literal["time", "depth"]
    """Whether every moment, or every millimetre of the way down, counts the same in the mean force."""
    mean_speed_m_s: Annotated[float, Field(gt=0, le=1)]
    """Mean speed of the descent: gives the duration."""
    start_clearance_m: Annotated[float, Field(ge=0, le=0.1)]
    board_clearance_m: Annotated[float, Field(ge=0, le=0.1)]
    blade_overlap_m: Annotated[float, Field(ge=0, le=0.1)]
    """How far the blade reaches beyond the fruit at both ends, at all times."""
    max_speed_m_s: Annotated[float, Field(gt=0, le=2)]
    max_acceleration_along_m_s2: Annotated[float, Field(gt=0, le=20)]
    max_acceleration_vertical_m_s2: Annotated[float, Field(gt=0, le=20)]
    keyframe_spacing_s: Annotated[float, Field(ge=0.02, le=10)]
    sigma2_s2: Annotated[float, Field(gt=0, le=10)]
    window_s: Annotated[float, Field(ge=0.12, le=1)]
    """Rise and fall of the motion at its ends; below 120 ms a robot's controller refuses it."""
    starts: Annotated[int, Field(ge=1, le=20)]
    """The first begins beside the vertical cut, the others are drawn."""
    candidates: Annotated[int, Field(ge=1, le=1000)]
    """Motions that are drawn and simulated once; the starts but the first are the best of them."""
    start_amplitude_m_s: Positive
    """Of the first start; at 0 the descent can't leave the vertical cut, by symmetry."""
    start_amplitude_range_m_s: tuple[Positive, Positive]
    start_frequency_range_rad_s: tuple[Positive, Positive]
    iterations: Annotated[int, Field(ge=1, le=10_000)]
    """Simulations per start."""
    ablation_iterations: Annotated[int, Field(ge=1, le=10_000)]
    """Of the search without constraints, which is only reported."""
    start_radius: Annotated[float, Field(gt=0, le=10)]
    """First length of a step, in the optimiser's units (0.1 m/s, 10 rad/s, a fifth of the descent)."""
    least_radius: Annotated[float, Field(gt=0, le=10)]
    """A start ends as converged when its steps have become shorter than this."""
    optimiser: Literal["adam", "adamax"]
    """Of MDMM."""
    inner_iterations: Annotated[int, Field(ge=10, le=100_000)]
    """Steps of MDMM between two simulations."""
    multiplier_rate: Annotated[float, Field(ge=0, le=100)]
    constraints: dict[str, ConstraintWeight]
    speed_weight_s2_m2: Annotated[float, Field(ge=0, le=100)]
    """Weight of the mean squared speed beside the mean force over that of the vertical cut."""
    draws: Annotated[int, Field(ge=1, le=100)]
    """Sets of parameters the mean force is averaged over: 1 is the fitted one alone."""
    draw_spread: Annotated[float, Field(ge=0, le=1)]
    processes: Annotated[int, Field(ge=1, le=256)]
    seed: int


class ExportParams(StageParams):
    """export: the cell (robot, board, knife) and how the knife goes to the cut and away from it."""

    robot: Literal["panda", "fr3"]
    board_position_m: Vector
    """Origin of the cutting frame (on the board, in the cut plane) in the robot's base frame."""
    blade_yaw_deg: Annotated[float, Field(ge=-360, le=360)]
    """Direction of the blade (the cutting frame's z) on the board, from the base's x axis."""
    edge_offset_m: Vector
    """Centre of the knife's edge in the flange's frame."""
    blade_angle_deg: Annotated[float, Field(ge=-360, le=360)]
    """Direction of the blade in the flange's x-y plane, from the flange's x axis."""
    knife: Literal["kitchen", "slicing", "folding"]
    """Gives the blade; must be the knife that the motion was optimised for."""
    fixture_low_m: Vector
    """Corner of a box around all that moves with the knife, save the blade; in the edge's frame (y up, z along)."""
    fixture_high_m: Vector
    tool_mass_kg: Annotated[float, Field(ge=0, le=3)]
    tool_com_m: Vector
    """Centre of mass of knife and fixture in the flange's frame."""
    joint_stiffness_nm_rad: Annotated[float, Field(ge=100, le=14250)]
    """Of the robot's joint impedance controller; the predicted deflection is stated for it."""
    max_deflection_m: Annotated[float, Field(gt=0, le=0.05)]
    board_clearance_m: Annotated[float, Field(ge=0, le=0.05)]
    """Least height of the edge above the board."""
    fixture_clearance_m: Annotated[float, Field(ge=0, le=0.1)]
    """Least distance of the fixture from board and fruit."""
    blade_overlap_m: Annotated[float, Field(ge=0, le=0.1)]
    """How far the blade reaches at least beyond the fruit at both ends."""
    approach_height_m: Annotated[float, Field(gt=0, le=0.5)]
    """Height above the start of the cut where the motion begins and ends."""
    approach_speed_m_s: Annotated[float, Field(gt=0, le=0.25)]
    approach_acceleration_m_s2: Annotated[float, Field(gt=0, le=5)]
    approach_jerk_m_s3: Annotated[float, Field(gt=0, le=500)]
    dwell_s: Annotated[float, Field(ge=0.01, le=10)]
    """Rest before and after the approach, the cut and the retract."""
    air_cut_lift_m: Annotated[float, Field(ge=0.01, le=0.3)]
    replay: bool
    """Replay the motion at torque level with MuJoCo (the extra `verify`)."""


class ReplayParams(StageParams):
    """replay: the optimised cut, recorded for the 3D viewers."""

    frames: Annotated[int, Field(ge=2, le=1000)]
    """Recorded moments, evenly spaced, the start and the end among them."""
    dt_s: Annotated[float, Field(ge=1e-5, le=0.01)]
    boundary: Literal["held", "glued", "free"]
    damage_law: Literal["force", "stretch"]
    force_limit_n: Positive


class Params(StageParams):
    """All sections of params.yaml, one per stage."""

    clean: CleanParams
    ingest: IngestParams
    tetrahedralize: TetrahedralizeParams
    precut: PrecutParams
    simulate: SimulateParams
    calibrate: CalibrateParams
    halve: HalveParams
    tetrahedralize_half: TetrahedralizeParams
    precut_half: PrecutHalfParams
    transport: TransportParams
    optimize: OptimizeParams
    export: ExportParams
    replay: ReplayParams


STAGE_SECTIONS: tuple[str, ...] = tuple(Params.model_fields)
"""The stages that have parameters, in the order of params.yaml."""


def load_params(params_yaml: Path, scan_yaml: Path | None = None) -> Params:
    """Read params.yaml, merge the scan's overrides over it, and validate the result.

    Raises InputError with key path, rule and remedy for the first fault.
    """
    overrides = read_mapping(scan_yaml) if scan_yaml else {}
    return merge_params(params_yaml, overrides, overrides_from=str(scan_yaml))


def merge_params(params_yaml: Path, overrides: Mapping[str, Any], *, overrides_from: str) -> Params:
    """Like load_params, with overrides that are not in a file yet; `overrides_from` names them in errors."""
    merged = read_mapping(params_yaml)
    for section in STAGE_SECTIONS:
        values = overrides.get(section) or {}
        if not isinstance(values, dict):
            raise InputError(
                f"{overrides_from}: {section} is {values!r}. A section must map parameters to values. "
                f"Write it as '{section}: {{key: value}}'."
            )
        base = merged.get(section)
        if values:
            merged[section] = _merged(base, values) if isinstance(base, dict) else values
    try:
        return Params.model_validate(merged)
    except ValidationError as error:
        fault = error.errors(include_url=False)[0]
        source = overrides_from if _is_overridden(fault["loc"], overrides) else str(params_yaml)
        raise InputError(_sentence(fault, source, params_yaml)) from error


def _merged(base: dict[str, Any], values: dict[str, Any]) -> dict[str, Any]:
    """Values over base; where both hold a mapping, only the keys that values name are replaced."""
    out = {**base, **values}
    for key, value in values.items():
        if isinstance(value, dict) and isinstance(base.get(key), dict):
            out[key] = {**base[key], **value}
    return out


def _is_overridden(location: tuple[int | str, ...], overrides: Mapping[str, Any]) -> bool:
    return len(location) > 1 and location[1] in (overrides.get(str(location[0])) or {})


def _sentence(fault: ErrorDetails, source: str, params_yaml: Path) -> str:
    path = ".".join(str(part) for part in fault["loc"])
    if fault["type"] == "missing":
        return f"{source}: {path} is missing. Every parameter must have a value. Add {path} to {params_yaml}."
    if fault["type"] == "extra_forbidden":
        allowed = ", ".join(_allowed_keys(fault["loc"]))
        return f"{source}: {path} is not a known parameter. Known here: {allowed}. Correct or remove it."
    rule = fault["msg"][0].lower() + fault["msg"][1:]
    return f"{source}: {path} is {fault['input']!r}, but {rule}. Change {path} in {source}."


def _allowed_keys(location: tuple[int | str, ...]) -> list[str]:
    model: type[BaseModel] = Params
    for part in location[:-1]:
        annotation = model.model_fields[str(part)].annotation
        if not (isinstance(annotation, type) and issubclass(annotation, BaseModel)):
            break
        model = annotation
    return list(model.model_fields)
