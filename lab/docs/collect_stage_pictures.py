"""Copies the previews of the bundled sample's stages to docs/pictures/sample_<stage>.png.

    python -m lab.docs.collect_stage_pictures

Run it after `make demo`. The pictures are made at most 1000 pixels wide.
"""

from pathlib import Path

from PIL import Image

PROJECT = Path(__file__).resolve().parents[2]
SAMPLE = PROJECT / "data/scans/synthetic_apple"
WIDTH_PIXELS = 1000


def main() -> None:
    """One picture per stage that has a preview."""
    for preview in sorted(SAMPLE.glob("*/preview.png")):
        picture = Image.open(preview).convert("RGB")
        picture.thumbnail((WIDTH_PIXELS, WIDTH_PIXELS))
        picture.quantize(128).save(PROJECT / f"docs/pictures/sample_{preview.parent.name}.png", optimize=True)


if __name__ == "__main__":
    main()
