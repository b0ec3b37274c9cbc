"""Run a certified cut on a Franka arm. Without --execute nothing moves and nothing is contacted.

    python run_cut.py                                     check hashes and certificate, show the motion
    python run_cut.py --air --execute --robot NAME --host IP    the motion in the air, fruit removed: run this first
    python run_cut.py --execute --robot NAME --host IP    the cut, after confirmation

The arm must rest at its ready pose (or at the start pose). It moves to the start, cuts, retracts and returns, all by
certified files. The measured state is written to a log that `scan2cut executed` and `scan2cut run --log` read. If the
force gets too high the arm decelerates and stops; after that, or after a reflex, it can retrace its path.

Needs Python 3.10 or newer; --execute also needs a real-time kernel (a simulated robot: --no-realtime) and the client
library of the robot (cut.json, robot / control / run_script): pylibfranka for an FR3, panda-python for a Panda.
Exit codes: 0 done, 2 rejected and nothing moved, 3 stopped on the way.
"""

import os
import sys

# Python imports from the script's folder first, so that a folder json/ beside it would run instead of the library.
# Nothing is imported from there before _check_files has compared every entry with cut.json; os and sys are built in.
HERE = os.path.dirname(os.path.realpath(__file__))  # noqa: PTH120, TID251 -- pathlib may be shadowed
sys.path[:] = [entry for entry in sys.path if os.path.realpath(entry) != HERE]  # noqa: TID251
sys.dont_write_bytecode = True  # keeps the folder free of files that the certificate does not list

import argparse  # noqa: E402
import gc  # noqa: E402
import hashlib  # noqa: E402
import json  # noqa: E402
import signal  # noqa: E402
import stat  # noqa: E402
import threading  # noqa: E402
import time  # noqa: E402
from pathlib import Path  # noqa: E402
from typing import Any  # noqa: E402

EE_TOLERANCE, MASS_TOLERANCE_KG = 1e-4, 0.02
DEFAULT_STIFFNESS_NM_RAD = [3000.0, 3000.0, 3000.0, 2500.0, 2500.0, 2000.0, 2000.0]
DEFAULT_TORQUE_NM, DEFAULT_FORCE_N = 20.0, 20.0
"""Joint stiffness and collision thresholds that libfranka's examples set."""


def say(text: str) -> None:
    """Print to the terminal."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def _check_files(folder: Path) -> dict:
    """Return the document if the folder has only the certified files; raise ValueError with the reason if not."""
    if not stat.S_ISREG((folder / "cut.json").lstat().st_mode):
        raise ValueError("cut.json is not a regular file. Export again.")
    document = json.loads((folder / "cut.json").read_text(encoding="utf-8"), object_pairs_hook=unique)
    certificate = document.pop("certificate", None)
    if not certificate or certificate.get("certified") is not True:
        raise ValueError("cut.json has no valid certificate. Export again.")
    content = json.dumps(document, sort_keys=True, allow_nan=False).encode()
    if hashlib.sha256(content).hexdigest() != certificate["content_sha256"]:
        raise ValueError("cut.json was changed after it was certified. Export again.")
    digests = document["siblings_sha256"]
    folders = {parent for name in digests for parent in (folder / name).parents}
    for path in sorted(folder.rglob("*")):
        name, mode = path.relative_to(folder).as_posix(), path.lstat().st_mode
        if stat.S_ISDIR(mode) and path in folders:
            continue
        if not stat.S_ISREG(mode) or (name != "cut.json" and name not in digests):
            raise ValueError(
                f"{name} is not a file of this export. Only the listed files may be in {folder}, because Python "
                "would import what lies beside the script. Move it elsewhere."
            )
    for name, digest in digests.items():
        path = folder / name
        if not path.is_file() or hashlib.sha256(path.read_bytes()).hexdigest() != digest:
            raise ValueError(f"{name} is missing or was changed after it was certified. Export again.")
    document["certificate"] = certificate
    return document


def unique(pairs: list) -> dict:
    """Return the object; reject duplicate keys, of which another reader may take the other one."""
    if len({key for key, _ in pairs}) < len(pairs):
        raise ValueError("cut.json has a duplicate key. Export again.")
    return dict(pairs)


try:
    DOCUMENT = _check_files(Path(HERE))
except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as wrong:
    say(
        f"REFUSED: {wrong if isinstance(wrong, ValueError) else f'cut.json is unusable ({wrong!r}). Export again.'}"
    )
    raise SystemExit(2) from None

sys.path.append(HERE)
from cut_stream import FIELDS, Motion, RefusalError, Run, off, plain_text, stiffness, way_in  # noqa: E402
from franka_arm import ARMS, SETTLE_READINGS, connect  # noqa: E402

sys.path.remove(HERE)


def check_robot(document: dict, name: str) -> None:
    """Reject a robot this motion was not made for."""
    robot = document["robot"]
    if name != robot["name"]:
        raise RefusalError(
            f"This cut was certified for {robot['name']}, not for {name}. Export with --set arm.robot={name}."
        )


def check_calibrated(document: dict, motion: Motion, accepted: bool) -> None:
    """Reject a cut whose forces are estimates, unless that was accepted; an air cut needs no force."""
    if document["demand"].get("force_calibrated", True) or motion.air or accepted:
        return
    raise RefusalError(
        "No force log of this fruit was fitted: predicted force and stop force are estimates. Make a probe cut and "
        "run again with --log, or accept the estimates with --accept-uncalibrated."
    )


def check_script(document: dict) -> None:
    """Reject a robot that this script can't move."""
    robot = document["robot"]
    if robot["control"]["run_script"] not in ARMS:
        ways = ", or ".join(f"{file} with {client}" for file, client in robot["control"]["clients"].items())
        raise RefusalError(f"This script does not support a {robot['title']}. Play {ways}.")


def confirm(question: str, answer: str) -> bool:
    """Ask for confirmation; anything but the answer is a no."""
    say(question)
    sys.stdout.write(f"Type {answer} to continue: ")
    sys.stdout.flush()
    try:
        return sys.stdin.readline().strip() == answer
    except KeyboardInterrupt:
        say("")
        return False


def describe(document: dict, motion: Motion) -> None:
    """Print what would happen."""
    loads = document["certificate"]["loads"]
    say(document["warning"])
    say(f"{'Air cut' if motion.air else 'CUT'} of {document['scan']} for {document['robot']['title']}")
    seconds = [(len(q) - 1) / 1000 for q in (motion.to_start, motion.joints, motion.to_ready)]
    say(
        f"{seconds[0]:.2f} s to the start, {seconds[1]:.2f} s motion, {seconds[2]:.2f} s back to the ready pose"
    )
    say(
        f"Predicted peak force {loads['peak_force_n']:.0f} N. This script sets a joint stiffness of "
        f"{stiffness(document)[0]:g} Nm/rad: deflection {1000 * loads['deflection_m']:.1f} mm (at libfranka's usual "
        f"3000 Nm/rad it would be {1000 * loads['deflection_at_3000_nm_rad_m']:.1f} mm)"
    )
    say(
        f"Stops at {motion.collision['stop_force_n']:.0f} N"
        + (
            f"; an obstacle in the cut stops the knife within {1000 * loads['stop_time_s']:.0f} ms and "
            f"{1000 * loads['stop_depth_m']:.1f} mm"
            if "stop_time_s" in loads
            else ""
        )
    )
    say(document["certificate"]["verdict"])


def set_up(arm: Any, document: dict, motion: Motion) -> None:
    """Set load, end effector, stiffness and thresholds; read back those the robot reports."""
    robot, tool = arm.robot, document["tool"]
    state = robot.read_once()
    arm.before = tuple(getattr(state, name) for name in ("m_load", "F_x_Cload", "I_load", "F_T_EE"))
    if not state.m_ee <= MASS_TOLERANCE_KG:
        raise RefusalError(
            f"Desk has an end effector of {state.m_ee:.2f} kg mounted. The knife is sent as the load, so "
            "there must be none. Choose 'Other' with mass 0 in Desk."
        )
    robot.set_load(tool["mass_kg"], tool["com_in_flange_m"], [1e-3, 0, 0, 0, 1e-3, 0, 0, 0, 1e-3])
    edge_frame = document["frames"]["F_T_E"]
    flat = arm.nominal_end_effector()
    nominal = [[flat[row + 4 * column] for column in range(4)] for row in range(4)]
    arm.nominal = nominal
    arm.set_end_effector(_in_nominal(arm, edge_frame))
    robot.set_joint_impedance(stiffness(document))
    torque, force = motion.collision["torque_nm"], motion.collision["force_n"]
    robot.set_collision_behavior(torque, torque, force, force)
    flat = [value for row in edge_frame for value in row]
    for _ in range(SETTLE_READINGS):
        state = robot.read_once()
        seen = [state.F_T_EE[row + 4 * column] for row in range(4) for column in range(4)]
        heavy, elsewhere = abs(state.m_load - tool["mass_kg"]), off(seen, flat)
        if heavy <= MASS_TOLERANCE_KG and elsewhere <= EE_TOLERANCE:
            return
    raise RefusalError(
        f"The robot reports a load of {state.m_load:.2f} kg and an end effector {1000 * elsewhere:.0f} mm off the "
        f"knife's edge. It must accept {tool['mass_kg']:g} kg and the edge. Clear load and end effector in Desk."
    )


def restore(arm: Any) -> None:
    """Set load and end effector as they were, and libfranka's stiffness and thresholds, which no robot reports."""
    mass, centre, inertia, edge = arm.before
    arm.robot.set_load(mass, list(centre), list(inertia))
    arm.set_end_effector(
        _in_nominal(arm, [[edge[row + 4 * column] for column in range(4)] for row in range(4)])
    )
    arm.robot.set_joint_impedance(DEFAULT_STIFFNESS_NM_RAD)
    torque, force = [DEFAULT_TORQUE_NM] * 7, [DEFAULT_FORCE_N] * 6
    arm.robot.set_collision_behavior(torque, torque, force, force)


def _in_nominal(arm: Any, edge_frame: list) -> list:
    """Return NE_T_EE, column-major, for F_T_EE given by rows."""
    pose = _product(_inverse(arm.nominal), edge_frame)
    return [pose[row][column] for column in range(4) for row in range(4)]


def _product(a: list, b: list) -> list:
    return [[sum(a[i][k] * b[k][j] for k in range(4)) for j in range(4)] for i in range(4)]


def _inverse(pose: list) -> list:
    turn = [[pose[j][i] for j in range(3)] for i in range(3)]
    return [[*row, -sum(row[k] * pose[k][3] for k in range(3))] for row in turn] + [[0.0, 0.0, 0.0, 1.0]]


def write_log(path: Path, run: Run, document: dict, ended: str, *, simulated: bool, kind: str = "") -> None:
    """Write the recorded state atomically as one JSON object of arrays."""
    start = run.rows[0][0]
    log: dict = {"time": [row[0] - start for row in run.rows], "motion_step": [row[1] for row in run.rows]}
    for i, name in enumerate(FIELDS):  # an FR3 sends single precision, at most nine digits
        log[name] = [[float(f"{value:.9g}") for value in row[2][i]] for row in run.rows]
    log["scan2cut"] = {
        "scan": document["scan"],
        "motion": kind or ("air_cut" if run.motion.air else "cut"),
        "content_sha256": document["certificate"]["content_sha256"],
        "ended": ended,
        "simulated": simulated,
    }
    unfinished = path.with_name(path.name + ".unfinished")
    unfinished.write_text(json.dumps(log), encoding="utf-8")
    os.replace(unfinished, path)


def new_log(folder: Path, air: bool) -> Path:
    """Return the default log, by date and time: in the scan's folder `measured`, or beside a copied export."""
    scan = next((parent for parent in folder.parents if (parent / "scan.yaml").is_file()), folder.parent)
    return scan / "measured" / time.strftime(f"{'air' if air else 'cut'}_%Y%m%d_%H%M%S.json")


def check_log(folder: Path, log: Path, *, given: bool) -> None:
    """Reject a log inside the export, which the next export replaces, and one that exists."""
    if folder in log.resolve().parents:
        raise RefusalError(
            f"The log {log} would be inside the certified folder {folder}. A file more there makes verify refuse it, "
            f"and the next export replaces the folder. Omit --log to write to {new_log(folder, False).parent}."
        )
    if not given:
        log.parent.mkdir(exist_ok=True)
    if log.exists() or not log.absolute().parent.is_dir():
        raise RefusalError(f"The log {log} exists, or its folder does not. Give a new file with --log.")


def stopped_at(log: Path, document: dict, motion: Motion) -> float:
    """Return the last step of a log of this motion [ms]; raise RefusalError if it is of another one."""
    content = json.loads(log.read_text(encoding="utf-8"))
    header, kind = content["scan2cut"], "air_cut" if motion.air else "cut"
    if (header["content_sha256"], header["motion"]) != (document["certificate"]["content_sha256"], kind):
        raise RefusalError(
            f"{log} was not recorded with this motion. Give the log that ended where the arm is."
        )
    return float(content["motion_step"][-1])


def _show_progress(run: Run) -> None:
    """Print a line twice a second while the arm moves."""
    while not run.done:
        if run.path and run.moving:
            say(f"  {100 * run.place / len(run.path):3.0f} %, force {run.force.size:5.1f} N")
        time.sleep(0.5)


def execute(
    document: dict,
    motion: Motion,
    host: str,
    log: Path,
    *,
    realtime: bool,
    retrace: "float | None" = None,
    ready: bool = False,
    confirmed: bool = False,
) -> int:
    """Connect, set up, ask, move, record; return the exit code.

    `retrace` is where a stopped arm is on its path; `confirmed`: the operator was asked already (run_slices.py).
    """
    arm = connect(document["robot"]["control"]["run_script"], host, realtime=realtime)
    errors = arm.errors(arm.library)
    try:
        set_up(arm, document, motion)
        state = arm.robot.read_once()
        if retrace is None and not ready:
            way_in(motion, list(state.q_d), list(state.dq))
    except RefusalError:
        _restore(arm, errors)
        raise
    except errors as error:
        raise RefusalError(
            f"The robot at {host} refused ({error}). It must be unlocked, with FCI on and without errors. Check Desk."
        ) from error
    condition = (
        "The fruit is OFF the board." if motion.air else "The air cut ran well and the fruit is in place."
    )
    if ready:
        condition = (
            "The straight joint move to the ready pose, which is not certified, is clear of board and fruit."
        )
    if retrace is not None:
        condition = "Nothing was moved or changed since the arm stopped."
    if not confirmed and not (
        confirm(condition, "yes") and confirm("Nobody is within reach; the stop button is in hand.", "move")
    ):
        _restore(arm, errors)
        raise RefusalError("Not confirmed.")
    run = Run(arm, document, motion)
    threading.Thread(target=_show_progress, args=(run,), daemon=True).start()
    reason = ""
    try:
        if retrace is None:
            reason = _moved(run, run.to_ready if ready else run.forward, errors)
        else:
            run.resume(retrace)
            reason = f"The arm stopped at {retrace / 1000:.2f} s of the motion."
        if reason and run.path:
            reason += _way_back(run, reason, errors)
    finally:  # the log is kept whatever happens
        run.done = True
        if run.rows:
            kind = "to_ready" if ready else ""
            write_log(log, run, document, reason or "finished", simulated=not realtime, kind=kind)
            say(f"Log: {log}")
    _restored(run, errors)
    say("Motion finished." if not reason else f"NOT FINISHED: {reason}")
    if run.path and not run.home:
        say(
            "The arm was left on its path, and the knife may be in the fruit. Either retrace the path later with\n"
            f"  python run_cut.py{' --air' if motion.air else ''} --execute --robot {document['robot']['name']} "
            f"--host {host} --retrace {log}\nor hold the knife, free it by hand guiding, and move the arm to its ready "
            "pose in Desk."
        )
    return 3 if reason else 0


def _way_back(run: Run, reason: str, errors: tuple) -> str:
    """Offer to retrace the path until the arm is at its start or the operator declines; return what happened."""
    happened = ""
    say(f"STOPPED: {reason}")
    while not run.home and confirm("The knife may be in the fruit. It can slowly retrace its path.", "back"):
        again = _moved(run, run.back, errors)
        happened += again if again.startswith(" ") else f" {again}"
        say(again.strip())
    return happened


def _restored(run: Run, errors: tuple) -> None:
    """Restore the robot's settings, except for an arm that was left on its path: hand guiding needs the load."""
    if run.path and not run.home:
        say("Load and end effector stay set: hand guiding needs them.")
    else:
        _restore(run.arm, errors)


def _restore(arm: Any, errors: tuple) -> None:
    if not hasattr(arm, "nominal"):
        return  # nothing was set
    try:
        restore(arm)
    except errors as error:
        say(
            f"Load, end effector, stiffness and thresholds could not be restored ({error}). Set them in Desk."
        )


def _moved(run: Run, action: Any, errors: tuple) -> str:
    """Run without garbage collection; an exception of the robot becomes the reason of the stop.

    The first Ctrl-C decelerates along the path, the second one ends the connection, which stops the robot at once.
    """

    def halt(_number: int, _frame: Any) -> None:
        if run.halt:
            raise KeyboardInterrupt
        run.halt = True

    gc.disable()
    run.halt, run.moving = False, True
    previous = signal.signal(signal.SIGINT, halt)
    try:
        return action()
    except KeyboardInterrupt:
        return "Ctrl-C was pressed twice: the robot stopped at once."
    except errors as error:
        return f"The robot stopped the motion ({str(error) or type(error).__name__})."
    finally:
        signal.signal(signal.SIGINT, previous)
        run.moving = False
        gc.enable()


def main() -> int:
    """Return 0 if all went well, 2 if rejected, 3 if stopped."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--air", action="store_true", help="the motion in the air")
    parser.add_argument("--execute", action="store_true", help="move the robot")
    parser.add_argument(
        "--accept-uncalibrated",
        action="store_true",
        help="cut although no force log of this fruit was fitted",
    )
    parser.add_argument("--robot", help="the robot at that address; must be the one of cut.json")
    parser.add_argument("--host", help="address of the robot")
    parser.add_argument(
        "--log", type=Path, help="new file for the measured state [default: in the scan's folder measured]"
    )
    parser.add_argument(
        "--ready", action="store_true", help="bring the arm to its ready pose: slow, straight in joint space"
    )
    parser.add_argument("--retrace", type=Path, help="log of a motion that stopped: go back from there")
    parser.add_argument(
        "--no-realtime", action="store_true", help="without a real-time kernel: simulated robots only"
    )
    parser.add_argument(
        "--plain", type=Path, help="check everything and write the motion as a new file for stream_cut.cpp"
    )
    options = parser.parse_args()
    folder, document = Path(HERE), DOCUMENT
    log = options.log or new_log(folder, options.air)
    try:
        if options.robot:
            check_robot(document, options.robot)
        motion = Motion(folder, document, options.air)
        describe(document, motion)
        if options.plain:
            if options.execute or not options.robot:
                raise RefusalError("--plain needs --robot and excludes --execute.")
            check_script(document)
            check_log(folder, options.plain, given=True)
            with options.plain.open("x", encoding="utf-8") as file:
                file.write(plain_text(document, motion))
            say(f"All checks passed. Written for stream_cut.cpp: {options.plain}")
            return 0
        if not options.execute:
            say("All checks passed. Dry run: nothing was moved.")
            return 0
        if not (options.robot and options.host):
            raise RefusalError("--execute needs --robot and --host.")
        if not options.ready:
            check_calibrated(document, motion, options.accept_uncalibrated)
        check_script(document)
        check_log(folder, log, given=options.log is not None)
        step = stopped_at(options.retrace, document, motion) if options.retrace else None
        realtime = not options.no_realtime
        return execute(
            document, motion, options.host, log, realtime=realtime, retrace=step, ready=options.ready
        )
    except KeyboardInterrupt:
        say("REFUSED: Ctrl-C was pressed before anything moved.")
        return 2
    except (RefusalError, OSError, ValueError, KeyError) as reason:
        say(f"REFUSED: {reason}")
        return 2


if __name__ == "__main__":
    raise SystemExit(main())
