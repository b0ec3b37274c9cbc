"""The simulator can be installed without the pipeline, and its objects describe themselves in one line."""

import os
import shutil
import subprocess
import sys
import tomllib
from importlib.metadata import distributions
from pathlib import Path

import pytest

from disect_sim import MATERIALS, ConstantVelocity, box_mesh, build_model, cut_by_plane, simulate

ROOT = Path(__file__).parents[2]
ONLY_THE_SIMULATOR = """
import sys
class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {"dvc", "prefect", "open3d", "polars", "stages", "pipelines"}:
            raise ImportError(name + " does not belong to the simulator")
sys.meta_path.insert(0, Refuse())
import disect_sim
assert disect_sim.__file__.startswith(sys.argv[1]), disect_sim.__file__
sys.path.insert(0, sys.argv[2])
from examples import soft_body
print(soft_body.main(sys.argv[1] + "/picture.png"))
"""


def test_one_version():
    here, alone = (
        tomllib.loads((ROOT / folder / "pyproject.toml").read_text()) for folder in (".", "disect_sim")
    )
    assert here["project"]["version"] == alone["project"]["version"]
    needed = set(alone["project"]["dependencies"])
    assert needed <= set(here["project"]["dependencies"])


@pytest.mark.slow
@pytest.mark.ci
def test_installed_alone(tmp_path):
    # Not imported: setuptools replaces distutils in this process. Not fetched: a test needs no network.
    if not any(d.name == "setuptools" and int(d.version.partition(".")[0]) >= 77 for d in distributions()):
        pytest.skip("the build needs setuptools 77")
    source = shutil.copytree(
        ROOT / "disect_sim", tmp_path / "source", ignore=shutil.ignore_patterns("__pycache__")
    )
    target = tmp_path / "installed"
    options = ["-qq", "--no-deps", "--no-build-isolation", "--target", str(target)]
    pip = [sys.executable, "-m", "pip", "install", *options, str(source)]
    done = subprocess.run(pip, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert (target / "disect_sim" / "py.typed").is_file()
    done = subprocess.run(
        [sys.executable, "-c", ONLY_THE_SIMULATOR, str(target), str(ROOT)],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(target), "MPLBACKEND": "Agg"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip().splitlines()[-1].startswith("Result(500 samples, peak force 0.")


def test_short_descriptions():
    nodes, tets = box_mesh((-0.01, 0.0, -0.01), (0.01, 0.02, 0.01), (2, 2, 2))
    model = build_model(cut_by_plane(nodes, tets), MATERIALS["apple"])
    result = simulate(
        model, ConstantVelocity(initial_y=0.02, velocity_y=-0.2), duration=0.01, differentiable=True
    )
    gradients = result.gradient(result.force)
    assert repr(model.mesh).endswith("springs on 4 cm²)")
    for thing in (model, result, gradients):
        assert len(repr(thing)) < 700 and "array(" not in repr(thing)
