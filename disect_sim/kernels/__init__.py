"""Force laws as Warp kernels: one source for CPU and CUDA."""

import warp as wp

if wp.config.log_level == wp.LOG_INFO:
    wp.config.log_level = (
        wp.LOG_ERROR
    )  # no banner, no line per loaded kernel, no warning where there is no GPU
