"""The only door to open3d.

open3d links against libusb-1.0, which a bare machine lacks, so the copy from `libusb-package` is loaded
first.
The import takes about a second, so it happens on first use and not when a stage module is imported.
"""

import ctypes
from functools import cache
from types import ModuleType

from disect_sim.errors import InputError


@cache
def open3d() -> ModuleType:
    """The open3d module, quiet (errors only) and with its random numbers seeded."""
    try:
        import libusb_package

        ctypes.CDLL(str(libusb_package.get_library_path()), mode=ctypes.RTLD_GLOBAL)
        import open3d as module
    except (ImportError, OSError) as error:
        raise InputError(
            f"open3d could not be loaded ({error}). The stage clean needs it. "
            "Run `make setup`, or `pip install open3d libusb-package`."
        ) from error
    module.utility.set_verbosity_level(module.utility.VerbosityLevel.Error)
    module.utility.random.seed(0)
    return module
