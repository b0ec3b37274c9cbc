"""Part of run_cut.py that streams joints to the arm, records the measured state and monitors the force.

Plain Python, copied beside run_cut.py into every certified export.
"""

import csv
from collections.abc import Generator
from pathlib import Path
from typing import Any

READY_TOLERANCE_RAD, START_TOLERANCE_RAD = 0.05, 0.005
_STILL_RAD_S = 0.01
_READY_RAD_S = 0.2
"""Largest joint speed of the move to the ready pose."""
GLIDE_SAMPLES = 2000
"""Duration of the glide to the exact pose: 50 mrad in 2 s are at most 0.05 rad/s and 0.07 rad/s²."""
SMOOTH = 0.05
"""Weight of a new force reading: a mean over about 20 ms."""
LOUD_SAMPLES = 10
"""Number of consecutive readings above the limit that stop the arm."""
_STOP_SHARE = 0.9
"""Fraction of the acceleration limits that deceleration may use in addition to the motion."""
_STOP_S = (0.05, 0.8)
BACK_RATE, BACK_RAMP = 0.25, 500
"""Retracing: fraction of the forward speed, and number of cycles to reach it."""
_STOP_RAMPS = 5
"""Stop on the way back: that many times faster than the start."""
_PULL_N = 10.0
"""Force above that at rest which may appear on the way back until the knife has come free."""
FIELDS = ("q", "dq", "O_T_EE", "F_T_EE", "O_F_ext_hat_K", "tau_ext_hat_filtered")
"""Fields of the log in addition to the time."""


class RefusalError(Exception):
    """Reason not to move."""


def _read_joints(path: Path) -> list:
    """Read joint angles [rad], one row of seven per millisecond."""
    with path.open(newline="", encoding="utf-8") as file:
        rows = list(csv.reader(file))
    return [[float(value) for value in row[1:]] for row in rows[1:]]


class Motion:
    """The files of the cut or of the air cut, joined: to the start, the motion, back to the ready pose."""

    def __init__(self, folder: Path, document: dict, air: bool) -> None:
        variant = folder / "air_cut" if air else folder
        self.air = air
        self.to_start, self.joints, self.to_ready = (
            _read_joints(variant / name) for name in ("to_start.csv", "motion_1khz.csv", "to_ready.csv")
        )
        self.collision = document["collision"]["air_cut" if air else "cut"]
        self.free_force_n = document["collision"]["air_cut"]["stop_force_n"]
        phases = document["timing"]["phases"]
        first = next(i for i, phase in enumerate(phases) if phase["phase"] == "cut")
        self.tare = [round(1000 * phases[first - 1][key]) for key in ("start_s", "end_s")]
        self.cut_from = round(1000 * phases[first]["start_s"])


def stiffness(document: dict) -> list:
    """Return the joint stiffness [Nm/rad], from the part of cut.json that the certificate's hash covers."""
    return [document["demand"]["params"]["joint_stiffness_nm_rad"]] * 7


def plain_text(document: dict, motion: Motion) -> str:
    """Return motion and settings for stream_cut.cpp: a word and its numbers per line, then the joints."""
    edge_frame = document["frames"]["F_T_E"]
    path = [*motion.to_start, *motion.joints[1:], *motion.to_ready[1:]]
    lines = {
        "scan2cut-stream": [1],
        "scan": [document["scan"]],
        "motion": ["air_cut" if motion.air else "cut"],
        "content_sha256": [document["certificate"]["content_sha256"]],
        "mass_kg": [document["tool"]["mass_kg"]],
        "com_in_flange_m": document["tool"]["com_in_flange_m"],
        "F_T_E": [edge_frame[row][column] for column in range(4) for row in range(4)],
        "stiffness_nm_rad": stiffness(document),
        "torque_nm": motion.collision["torque_nm"],
        "force_n": motion.collision["force_n"],
        "acceleration_rad_s2": document["limits"]["acceleration_rad_s2"],
        "free_force_n": [motion.free_force_n],
        "stop_force_n": [motion.collision["stop_force_n"]],
        "tare_from": motion.tare[:1],
        "tare_to": motion.tare[1:],
        "cut_from": [motion.cut_from],
        "first": [len(motion.to_start) - 1],
        "rows": [len(path)],
    }
    head = [" ".join([word, *map(str, values)]) for word, values in lines.items()]
    return "\n".join([*head, *(" ".join(map(str, row)) for row in path), "end", ""])


def off(pose: list, joints: list) -> float:
    """Return the largest joint difference [rad]."""
    return max(abs(a - b) for a, b in zip(pose, joints, strict=True))


def way_in(motion: Motion, joints: list, speeds: list) -> list:
    """Return the file that leads from the current rest pose to the start; raise RefusalError if none does."""
    if not max(abs(speed) for speed in speeds) <= _STILL_RAD_S:
        raise RefusalError("The arm is moving. It must be at rest before the motion. Wait.")
    if off(motion.to_start[0], joints) <= READY_TOLERANCE_RAD:
        return motion.to_start
    if off(motion.joints[0], joints) <= START_TOLERANCE_RAD:
        return motion.joints[:1]
    pose = ", ".join(f"{q:.4f}" for q in motion.to_start[0])
    position = ", ".join(f"{q:.4f}" for q in joints)
    raise RefusalError(
        f"The arm is at [{position}] rad. The motion begins at the ready pose [{pose}] ± {READY_TOLERANCE_RAD} rad. "
        "Move the arm there with --ready, Desk or hand guiding."
    )


def _to_ready_pose(ready: list, joints: list) -> list:
    """Return a slow straight move in joint space from the current pose to the ready pose, one row per millisecond."""
    count = max(1000, round(1000 * 1.875 * off(ready, joints) / _READY_RAD_S))
    steps = (smooth(k / count) for k in range(count + 1))
    return [[a + s * (b - a) for a, b in zip(joints, ready, strict=True)] for s in steps]


class Force:
    """Monitor of the measured force: tare, smoothing and limit."""

    def __init__(self, limit_n: float) -> None:
        self.limit_n, self.loud = limit_n, 0
        self.tare: list = []
        self.mean = [0.0] * 3
        self._sum, self._count = [0.0] * 3, 0

    def collect(self, reading: list) -> None:
        """Add a reading at rest, for the tare."""
        self._sum = [a + b for a, b in zip(self._sum, reading, strict=True)]
        self._count += 1

    def settle(self) -> None:
        """Take the readings so far as the new tare."""
        if self._count:
            self.tare, self.mean, self.loud = [v / self._count for v in self._sum], [0.0] * 3, 0
        self._sum, self._count = [0.0] * 3, 0

    def too_high(self, reading: list) -> bool:
        """Return True if the mean force was above the limit for a while."""
        if not self.tare:
            self.tare = list(reading)
        self.mean = [
            (1.0 - SMOOTH) * m + SMOOTH * (r - t)
            for m, r, t in zip(self.mean, reading, self.tare, strict=True)
        ]
        self.loud = self.loud + 1 if self.size > self.limit_n else 0
        return self.loud >= LOUD_SAMPLES

    @property
    def size(self) -> float:
        """Norm of the smoothed force [N]."""
        return sum(m * m for m in self.mean) ** 0.5


class Run:
    """One motion on the arm: streams joints, records the state, monitors the force."""

    def __init__(self, arm: Any, document: dict, motion: Motion) -> None:
        self.arm, self.motion = arm, motion
        self.limits = document["limits"]["acceleration_rad_s2"]
        self.path: list = []
        self.place, self.first = 0.0, 0
        """Position of the arm on the path, and start of motion_1khz.csv on it."""
        self.force = Force(motion.free_force_n)
        self.cutting = False
        self.reason = ""
        """Reason for an early stop; empty if there was none."""
        self.rows: list = []
        self.done = False
        self.moving = False
        self.halt = False
        """Set by Ctrl-C: stop as on too high a force."""

    @property
    def home(self) -> bool:
        """True if the arm is at the beginning or the end of its path."""
        return bool(self.path) and self.place in (0.0, len(self.path) - 1)

    def forward(self) -> str:
        """Play the whole path; return the reason for an early stop, or an empty string."""
        state = self.arm.robot.read_once()
        entry = way_in(self.motion, list(state.q_d), list(state.dq))
        self.first = len(entry) - 1
        self.path = [*entry, *self.motion.joints[1:], *self.motion.to_ready[1:]]
        self.arm.play(self.onward())
        return self.reason

    def to_ready(self) -> str:
        """Move straight in joint space to the ready pose; return the reason for an early stop, or an empty string."""
        state = self.arm.robot.read_once()
        self.path = _to_ready_pose(self.motion.to_start[0], list(state.q_d))
        self.first = (
            len(self.path) + self.motion.cut_from
        )  # never in the cut: the limit is that of free motion
        self.arm.play(self.onward())
        return self.reason

    def back(self) -> str:
        """Retrace the path slowly from where the arm stopped to its start; return a message."""
        self.arm.robot.automatic_error_recovery()
        self.reason, self.halt = "", False
        self.arm.play(self.homeward())
        if self.reason:
            return f" It stopped again on the way back. {self.reason}"
        return " The arm retraced its path to the start."

    def resume(self, step: float) -> None:
        """Put the arm where a log ended, in steps of motion_1khz.csv; raise RefusalError if it is elsewhere."""
        motion, state = self.motion, self.arm.robot.read_once()
        self.first = len(motion.to_start) - 1
        self.path = [*motion.to_start, *motion.joints[1:], *motion.to_ready[1:]]
        self.place = min(max(step + self.first, 0.0), len(self.path) - 1.0)
        distance = off(between(self.path, self.place), list(state.q_d))
        if not distance <= START_TOLERANCE_RAD:
            raise RefusalError(
                f"The arm is {distance:.3f} rad from where the log ends. It must not have moved by more than "
                f"{START_TOLERANCE_RAD} rad since. Free the knife by hand guiding and move the arm to its ready pose."
            )

    def onward(self) -> Generator[Any, Any, None]:
        """Yield joints [rad] along the path, each with a flag for the last; receives state and cycles passed."""
        yield from self._glide()
        slowing, slowed = 0, 0
        rate, last = 1.0, len(self.path) - 1
        while self.place < last and not (self.reason and rate <= 0.0):
            state, passed = yield between(self.path, self.place), False
            self.record(state)
            too_high = self._watch(state)
            if not self.reason and (too_high or self.halt):
                self.reason = self._why()
                slowing = stopping_cycles(self.path, self.place, self.limits)
            if self.reason:
                slowed += passed
                rate = 1.0 - smooth(min(1.0, slowed / slowing))
            self.place = min(last, self.place + rate * passed)
        yield between(self.path, self.place), True

    def homeward(self) -> Generator[Any, Any, None]:
        """Same, backwards from the current position, with the force monitored."""
        rate, ramp = 0.0, BACK_RATE / BACK_RAMP
        self.force.loud = 0
        yield from self._glide(self._feel)
        pressing = self.force.size + _PULL_N
        while self.place > 0.0 and not (self.reason and rate <= 0.0):
            state, passed = yield between(self.path, self.place), False
            self.record(state)
            cut_place = self.first + self.motion.cut_from
            limit = (
                self.motion.collision["stop_force_n"] if self.place >= cut_place else self.motion.free_force_n
            )
            # A knife that stands on a stone presses until it has come free; it must not press harder.
            pressing = 0.0 if self.force.size <= limit else pressing
            self.force.limit_n = max(limit, pressing)
            too_high = self._feel(state)
            if not self.reason and (too_high or self.halt):
                self.reason = self._why()
            # Ramp up, and down so that the start of the path, or a stop, is reached at rest.
            rate = min(rate + passed * ramp, BACK_RATE, (2.0 * self.place * ramp) ** 0.5)
            if self.reason:
                rate = max(0.0, rate - passed * (_STOP_RAMPS + 1) * ramp)
            self.place = max(0.0, self.place - passed * rate) if self.place > 1e-3 else 0.0
        yield between(self.path, self.place), True

    def _feel(self, state: Any) -> bool:
        return self.force.too_high(list(state.O_F_ext_hat_K[:3]))

    def _why(self) -> str:
        if self.halt:
            return "Ctrl-C was pressed."
        return f"The force reached {self.force.size:.0f} N, more than {self.force.limit_n:.0f} N."

    def _glide(self, feel: Any = None) -> Generator[Any, Any, None]:
        """Glide from the robot's desired joints to the path; the first pose sent is the desired one."""
        state, _ = yield
        desired, target, step = list(state.q_d), between(self.path, self.place), 0
        while step < GLIDE_SAMPLES:
            share = smooth(step / GLIDE_SAMPLES)
            pose = [a + share * (b - a) for a, b in zip(desired, target, strict=True)]
            state, passed = yield pose, False
            self.record(state)
            if feel:
                feel(state)
            step += passed

    def record(self, state: Any) -> None:
        """Store the state; it is written to disk when the arm rests."""
        values = [list(getattr(state, name)) for name in FIELDS]
        self.rows.append((state.time.to_sec(), self.place - self.first, values))

    def _watch(self, state: Any) -> bool:
        step, reading = round(self.place) - self.first, list(state.O_F_ext_hat_K[:3])
        begin, end = self.motion.tare
        if begin <= step <= end:
            self.force.collect(reading)
        if step >= self.motion.cut_from and not self.cutting:  # a lost packet may skip that very step
            self.cutting = True
            self.force.settle()
            self.force.limit_n = self.motion.collision["stop_force_n"]
        return self.force.too_high(reading)


def stopping_cycles(path: list, place: float, limits: list) -> int:
    """Return the deceleration time [ms] at which no joint exceeds its acceleration limit [rad/s²]."""
    k = min(max(round(place), 1), len(path) - 2)
    before, here, after = path[k - 1 : k + 2]
    need = _STOP_S[0]
    for a, b, c, limit in zip(before, here, after, limits, strict=True):
        room = _STOP_SHARE * limit - abs(c - 2 * b + a) * 1e6
        need = max(need, 1.875 * abs(c - a) * 500 / max(room, 0.1 * limit))
    return round(1000 * min(need, _STOP_S[1]))


def smooth(s: float) -> float:
    """Return a step from 0 to 1 that is at rest at both ends."""
    return s * s * s * (10.0 + s * (6.0 * s - 15.0))


def between(path: list, place: float) -> list:
    """Interpolate the path between two samples by a cubic through four; exact at samples."""
    k = min(int(place), len(path) - 1)
    t = place - k
    if t == 0.0 or k + 1 >= len(path):
        return path[k]
    four = [path[max(k - 1, 0)], path[k], path[k + 1], path[min(k + 2, len(path) - 1)]]
    weights = (
        0.5 * t * (t * (2.0 - t) - 1.0),
        0.5 * (t * t * (3.0 * t - 5.0) + 2.0),
        0.5 * t * (t * (4.0 - 3.0 * t) + 1.0),
        0.5 * t * t * (t - 1.0),
    )
    return [sum(w * q for w, q in zip(weights, column, strict=True)) for column in zip(*four, strict=True)]
