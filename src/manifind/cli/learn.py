"""`manifind learn`."""

import json
import sys
from pathlib import Path

import click

from manifind.cli.parameters import DEVICE
from manifind.cli.terminal import CHECK_FAILED, out, plain_errors, progress_bars
from manifind.index import Index


@click.command()
@click.argument("index_path", metavar="INDEX", type=click.Path(path_type=Path))
@DEVICE
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.pass_obj
def learn(debug: bool, index_path: Path, device: str, as_json: bool) -> None:
    """Teach the descriptions of INDEX by its own photos that show the same thing, where that helps.

    Geometry finds the pairs; some of them teach and the others judge. No photo is described again. Where it does not
    help, the index stays as it is and the exit code is 1.
    """
    with plain_errors(debug, interrupted="interrupted; the index is as it was."):
        opened = Index.open(index_path, device=device)
        with progress_bars(hidden=as_json) as progress:
            learnt = opened.learn(progress=progress)
        names = ("pairs", "regions", "apart", "things", "before", "after", "error", "helps")
        if as_json:
            told = {name: getattr(learnt, name) for name in (*names, "diffused")}
            click.echo(json.dumps({**told, "generation": opened.generation}, indent=2))
        else:
            out.print(
                f"{learnt.pairs} pairs of photos show the same thing, with {learnt.regions} pairs of regions to learn "
                f"from; {learnt.apart} more, of {learnt.things} things, were kept apart."
            )
            out.print(
                f"Mean reciprocal rank of those: {100 * learnt.before:.1f} before, {100 * learnt.after:.1f} after "
                f"(± {100 * learnt.error:.1f})."
            )
            if learnt.diffused is not None:
                before, after = learnt.diffused
                out.print(f"By diffusion, of their photos: {100 * before:.1f} before, {100 * after:.1f} after.")
            out.print(
                f"It helps: {index_path} is described so from generation {opened.generation} on."
                if learnt.helps
                else f"It does not help: {index_path} stays as it is."
            )
        if not learnt.helps:
            sys.exit(CHECK_FAILED)
