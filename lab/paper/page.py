"""lab/notes/experiments.md: every experiment writes its own part of the page, between two marks, and one figure."""

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from PIL import Image

from lab.paper.kept import FOLDER, ROOT, Kept
from stages.runtime.files import write_bytes_atomic
from stages.shared.pictures import pixels_of

PAGE = ROOT / "lab" / "notes" / "experiments.md"
PICTURES = ROOT / "lab" / "notes" / "pictures"
TOTAL = "total"
"""The part of the page with the time of all others."""


def table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """A Markdown table."""
    lines = [f"| {' | '.join(head)} |", "|" + "---|" * len(head)]
    return "\n".join([*lines, *(f"| {' | '.join(map(str, row))} |" for row in rows)])


def command(
    name: str,
    run: Callable[[Any, Kept], dict[str, Any]],
    text_of: Callable[[dict[str, Any]], str],
    draw: Callable[[dict[str, Any], Path], None],
    usual: Callable[[], Any],
) -> Callable[..., None]:
    """The experiment's command: runs what is not done, draws, and writes its part of the page; `usual` is its size.

    It ends with a sentence where real data is needed and not there.
    """

    def main(size: Any = None, page: Path = PAGE, folder: Path = FOLDER, pictures: Path = PICTURES) -> None:
        try:
            found = run(size or usual(), Kept(name, folder))
        except FileNotFoundError as error:
            raise SystemExit(str(error)) from error
        draw(found, pictures)
        write_part(name, text_of(found), page)

    return main


def write_part(name: str, text: str, page: Path = PAGE, *, figure: bool = True) -> None:
    """Replace what stands between the marks of this experiment; its figure comes last."""
    shown = f"\n\n![{name.replace('_', ' ')}](pictures/experiment_{name}.png)" if figure else ""
    whole = _replaced(page, page.read_text(encoding="utf-8"), name, text.strip() + shown)
    minutes = spent_s(whole) / 60.0
    whole = _replaced(page, whole, TOTAL, f"All of them together: {minutes:.0f} CPU-minutes on one core.")
    write_bytes_atomic(page, whole.encode())


def spent_s(text: str) -> float:
    """The CPU time that the parts of the page name: columns "CPU s", and so many "CPU-seconds" [s]."""
    total = sum(float(seconds) for seconds in re.findall(r"(\d+) CPU-seconds", text))
    column = None
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.split("|")] if line.startswith("|") else []
        if not cells:
            column = None
        elif column is None:
            column = cells.index("CPU s") if "CPU s" in cells else -1
        elif column > 0 and re.fullmatch(r"[\d.]+", cells[column]):
            total += float(cells[column])
    return total


def _replaced(page: Path, whole: str, name: str, text: str) -> str:
    begin, end = f"<!-- {name} -->", f"<!-- end of {name} -->"
    before, found, rest = whole.partition(begin)
    if not found or end not in rest:
        raise SystemExit(f"{page} has no part for {name}. It needs the lines {begin} and {end}. Add them.")
    return f"{before}{begin}\n{text}\n{end}{rest.partition(end)[2]}"


def write_figure(name: str, canvas: Any, folder: Path = PICTURES) -> None:
    """lab/notes/pictures/experiment_<name>.png."""
    folder.mkdir(parents=True, exist_ok=True)
    image = Image.fromarray(pixels_of(canvas)).convert("P", palette=Image.Palette.ADAPTIVE, colors=64)
    image.save(folder / f"experiment_{name}.png", optimize=True)
