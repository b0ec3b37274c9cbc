"""The example of docs/simulator.md runs, fits, and is what the page shows."""

from pathlib import Path

from lab.docs.simulator_example import fit_softness
from tests.disect_sim.tet_meshes import jittered_box

ROOT = Path(__file__).parents[2]


def test_adam_with_our_gradients_finds_the_softness():
    gradients, losses = fit_softness(*jittered_box(3))
    # More friction and a faster knife (velocity_y is negative) need more force.
    assert gradients.parameters["sdf_mu"] > 0.0
    assert gradients.motion["velocity_y"] < 0.0
    # Steps of 0.1 in log(softness) from 0.2 to 0.1 take seven iterations; a wrong gradient would not get there.
    assert losses[0] > 1.0
    assert min(losses) < 0.1 * losses[0]


def test_page_shows_the_example():
    page = (ROOT / "docs" / "simulator.md").read_text()
    shown = page.split("```python\n")[1].split("```")[0].splitlines()
    source = [
        line.strip() for line in (ROOT / "lab" / "docs" / "simulator_example.py").read_text().splitlines()
    ]
    assert [line for line in shown if line.strip() not in source] == []
