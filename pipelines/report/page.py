"""Putting blocks into one self-contained HTML file."""

from collections.abc import Sequence
from functools import cache
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from pipelines.report.blocks import Section

HERE = Path(__file__).parent
TEMPLATES, ASSETS = HERE / "templates", HERE / "assets"


def render_page(title: str, subtitle: str, sections: Sequence[Section]) -> str:
    """The page; all text is escaped by the template, styles and scripts are ours and stand in the page itself."""
    return (
        environment()
        .get_template("page.html")
        .render(
            title=title,
            subtitle=subtitle,
            sections=sections,
            styles=asset("uplot.min.css") + asset("page.css"),
            scripts=asset("uplot.min.js") + "\n" + asset("page.js"),
        )
    )


@cache
def environment() -> Environment:
    """Jinja with escaping on: scan names and error texts come from outside."""
    return Environment(
        loader=FileSystemLoader(TEMPLATES), autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )


@cache
def asset(name: str) -> str:
    """A style or script of ours or of a library."""
    return (ASSETS / name).read_text(encoding="utf-8")
