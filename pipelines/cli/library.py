"""The commands of the library of calibrated cuts."""

from typing import Annotated

import typer

from pipelines.cli.terminal import Json, out, print_json, print_text, this_project

app = typer.Typer(no_args_is_help=True, help="What earlier cuts lead to expect of a material.")


def add_library_commands(parent: typer.Typer) -> None:
    """Add them."""
    parent.add_typer(app, name="library")


@app.command()
def add(
    scan: Annotated[str, typer.Argument(help="Id of a scan that was calibrated on a log.")],
    as_json: Json = False,
) -> None:
    """Add a scan's calibrated cut to the library of its material: the next fits start from it."""
    from pipelines.scans.library import add_cut

    found = add_cut(this_project(), scan)
    if as_json:
        print_json(found)
        return
    values = found["entry"]["values"]
    said = ", ".join(f"{name} {value:.4g}" for name, (value, _) in values.items()) or "nothing new"
    print_text(out, f"{scan} is in the library of {found['material']} ({found['cuts']} cuts): {said}.")
    print_text(
        out,
        f"Other scans of this material are fitted again at their next run, as what is expected has changed. Commit "
        f"{found['file']}.",
    )
