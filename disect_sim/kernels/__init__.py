"""Force laws as Warp kernels: one source for CPU and CUDA."""

import os

import warp as wp

from disect_sim.processes import STDERR, native_output_silenced

if wp.config.log_level == wp.LOG_INFO:
    wp.config.log_level = wp.LOG_ERROR  # no banner, no line per loaded kernel
if not os.access("/proc/driver/nvidia", os.F_OK):
    with native_output_silenced(STDERR):  # Warp's native code warns where there is no GPU, whatever the level
        wp.init()
