"""What the stage ingest writes."""

from stages.runtime.describe import Column, metrics, picture, table

FORCE = (
    Column("time_s", "f64", "s", "time of the sample, from 0"),
    Column(
        "position_m",
        "array[f64,3]",
        "m",
        "measured middle of the edge: y above the board, x and z from the start",
    ),
    Column("velocity_m_s", "array[f64,3]", "m/s", "its velocity, from the low-passed positions"),
    Column("force_n", "array[f64,3]", "N", "force on the knife: raw_n less air_n"),
    Column("force_norm_n", "f64", "N", "norm of force_n"),
    Column("force_filtered_norm_n", "f64", "N", "norm of force_n after the low-pass"),
    Column("air_n", "array[f64,3]", "N", "tare: what the log would read without contact"),
    Column("raw_n", "array[f64,3]", "N", "force on the knife as logged"),
    Column(
        "valid",
        "bool",
        "",
        "false at rest before the descent, on the board, and where force or tare are not known",
    ),
    Column("contact", "bool", "", "true from where the knife first touches the fruit"),
    Column("uncertainty_n", "f64", "N", "standard uncertainty of force_filtered_norm_n"),
)

ARTIFACTS = (
    table(
        "ingest/force",
        FORCE,
        meaning="measured force and motion of the knife in the cutting frame; no rows if the scan has no log",
    ),
    table(
        "ingest/further",
        [Column("log", "i64", "", "number of the log, 2 for the second"), *FORCE],
        meaning="the same of further cuts of the fruit, one log after the other; no rows if there are none",
    ),
    metrics("ingest", "samples, rate, first touch, contact with the board, peak and mean force, tare"),
    picture("ingest", "raw, air and net force over time and height, with the contact onset"),
)
