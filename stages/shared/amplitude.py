"""What executed slices tell of a fruit's force: its own amplitude, the spread from cut to cut, the next slice's band.

The force of a slice over its prediction is exp(fruit + cut): the fruit's part is the same in all slices, the cut's part
is drawn anew for each. Their logarithms are normal with unknown mean and variance, so the posterior is known in closed
form (normal-inverse-gamma). Before the first slice the calibrated cut counts as one cut of this fruit, and the spread
from cut to cut is that of real cuts (library/variation.json), worth as many cuts as it was learnt from.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from stages.shared.library.library import CUT_SPREAD, NINETY, PRIOR_CUTS, VARIATION
from stages.shared.pictures import FRUIT, SCAN, TEXT, new_figure, pixels_of

_WORTH = PRIOR_CUTS + len(VARIATION["cut"]["factors"])
"""Number of cuts behind CUT_SPREAD: its prior's and the real pairs, see library.cut_spread."""
_UNCALIBRATED = 0.1
"""Number of cuts that a prediction without a force log of this fruit is worth."""
_UPPER = 0.95
"""Upper end of a 90 % band."""
SPREAD = CUT_SPREAD * NINETY / float(stats.t.ppf(_UPPER, _WORTH))
"""Most likely standard deviation from cut to cut, in logarithms; CUT_SPREAD is wider, for how little is known of it."""


@dataclass(frozen=True)
class Amplitude:
    """Posterior of a fruit's amplitude after some slices."""

    slices: int
    factor: float
    """Most likely force over the prediction of the calibrated model, the same for all slices [-]."""
    factor_low: float
    """90 % interval of it."""
    factor_high: float
    spread: float
    """Expected standard deviation from cut to cut, in logarithms."""
    next_low: float
    """90 % band of the next slice's force over the prediction of the calibrated model [-]."""
    next_high: float

    @property
    def known_within(self) -> float:
        """Half the 90 % interval of the factor, as a fraction."""
        return math.sqrt(self.factor_high / self.factor_low) - 1.0


def learn(ratios: Sequence[float], *, calibrated: bool = True) -> Amplitude:
    """Return the posterior from measured over predicted mean force of the executed slices; none gives the prior.

    ratios: against the calibrated model, i.e. without what was learnt from earlier slices.
    calibrated: whether the model was fitted to a cut of this fruit.
    """
    logs = np.log(np.asarray(ratios, float))
    count, mean = len(logs), float(logs.mean()) if len(logs) else 0.0
    worth = 1.0 if calibrated else _UNCALIBRATED
    total = worth + count
    centre = count * mean / total
    alpha = 0.5 * (_WORTH + count)
    beta = 0.5 * (_WORTH * SPREAD**2 + float(((logs - mean) ** 2).sum()) + worth * count * mean**2 / total)
    scale = math.sqrt(beta / alpha)
    half = float(stats.t.ppf(_UPPER, 2.0 * alpha)) * scale
    own, following = half / math.sqrt(total), half * math.sqrt(1.0 + 1.0 / total)
    return Amplitude(
        count,
        math.exp(centre),
        math.exp(centre - own),
        math.exp(centre + own),
        scale,
        math.exp(centre - following),
        math.exp(centre + following),
    )


def replan_pays(before: float, now: Amplitude, certified: float) -> str:
    """Return why the remaining slices should be planned anew, empty if not.

    before: factor with which they are planned; certified: force over the prediction up to which they are certified.
    """
    upper = now.next_high / before
    if upper > certified:
        return (
            f"19 of 20 next slices stay below {upper:.2f} of the planned force, and {certified:.2f} is certified: the "
            "slices need more force than planned"
        )
    if now.factor < before / certified:
        return f"the fruit needs {now.factor / before:.2f} of the planned force: lower forces allow a lower stop force"
    return ""


@dataclass(frozen=True)
class SliceForce:
    """Predicted, and if executed measured, force of one slice over time."""

    number: int
    time_s: NDArray[np.float64]
    predicted_n: NDArray[np.float64]
    low: float
    """Band around the prediction, as factors; known before this slice was cut."""
    high: float
    measured_time_s: NDArray[np.float64] | None = None
    measured_n: NDArray[np.float64] | None = None


def forces_picture(slices: Sequence[SliceForce], title: str) -> NDArray[np.uint8]:
    """Draw the force of every slice one after the other with its band; 8-bit pixels, shape [height, width, 3]."""
    figure, canvas = new_figure((max(8.0, 1.9 * len(slices)), 4.6))
    axis, start, ticks = figure.subplots(), 0.0, []
    for one in slices:
        label = {"label": "predicted, with 90 % band"} if one is slices[0] else {}
        time = start + one.time_s
        axis.fill_between(
            time, one.low * one.predicted_n, one.high * one.predicted_n, color=SCAN, alpha=0.5, lw=0
        )
        axis.plot(time, one.predicted_n, color=TEXT, lw=1.2, **label)
        if one.measured_n is not None and one.measured_time_s is not None:
            first = not any("measured" in text for text in axis.get_legend_handles_labels()[1])
            axis.plot(
                start + one.measured_time_s,
                one.measured_n,
                color=FRUIT,
                lw=1.6,
                label="measured" if first else None,
            )
        ticks.append((start + 0.5 * float(one.time_s[-1]), str(one.number)))
        start += 1.12 * float(one.time_s[-1])
    axis.set_xticks([at for at, _ in ticks], [text for _, text in ticks])
    axis.set(
        xlabel="slice (each over the time of its cut)", ylabel="force on the knife [N]", ylim=(0.0, None)
    )
    axis.set_title(title, color=TEXT, fontsize=10)
    axis.legend(frameon=False)
    return pixels_of(canvas)
