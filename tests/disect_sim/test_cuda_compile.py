"""The kernels compile for CUDA without a device: ahead of time, to PTX, by NVRTC."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

KERNELS = Path(__file__).parents[2] / "disect_sim" / "kernels"
MODULES = sorted(path.stem for path in KERNELS.glob("*.py") if "@wp.kernel" in path.read_text())
AMPERE = 80
"""Compute capability 8.0: the oldest with fast float64 that is still common."""

COMPILE = """
import importlib, sys
import warp as wp
for name in sys.argv[3:]:
    module = importlib.import_module("disect_sim.kernels." + name)
    try:
        paths = wp.compile_aot_module(module, arch=int(sys.argv[1]), module_dir=sys.argv[2], use_ptx=True)
    except RuntimeError as error:
        paths = [error]
    print("RESULT", name, paths[0])
"""


@pytest.fixture(scope="module")
def compiled(tmp_path_factory):
    """PTX of every module, made in a process of its own: compiling changes the options of a loaded module."""
    if sys.platform == "darwin":
        pytest.skip("Warp's builds for macOS have no CUDA compiler (NVRTC)")
    folder = tmp_path_factory.mktemp("ptx")
    command = [sys.executable, "-c", COMPILE, str(AMPERE), str(folder), *MODULES]
    run = subprocess.run(command, cwd=KERNELS.parents[1], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    return dict(re.findall(r"^RESULT (\w+) (.+)$", run.stdout, re.MULTILINE))


@pytest.mark.parametrize("name", MODULES)
def test_every_kernel_compiles_to_ptx(compiled, name):
    path = Path(compiled[name])
    assert path.suffix == ".ptx", compiled[name]
    ptx = path.read_text()
    assert f".target sm_{AMPERE}" in ptx
    kernels = re.findall(r"@wp\.kernel[^\n]*\ndef (\w+)", (KERNELS / f"{name}.py").read_text())
    assert kernels
    for kernel in kernels:
        assert re.search(rf"\.entry {kernel}_\w*cuda_kernel_forward", ptx), kernel


@pytest.mark.parametrize("name", ["springs", "boundary", "contact_force", "damage", "edge"])
def test_kernels_the_adjoint_runs_backwards_have_a_backward_pass(compiled, name):
    assert "cuda_kernel_backward" in Path(compiled[name]).read_text()


def test_no_kernel_takes_a_shortcut_that_only_a_cpu_has():
    for path in KERNELS.glob("*.py"):
        assert "func_native" not in path.read_text(), path.name
