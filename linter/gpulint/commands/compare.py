"""`gpulint compare`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from .console import Refused, terminal
from .options import hardware_options, layers_of

if TYPE_CHECKING:
    from ..run.estimated import Estimated
    from ..settings.layers import Layers


@click.command("compare")
@click.argument("before", metavar="BEFORE")
@click.argument("after", metavar="AFTER")
@hardware_options
@click.option("--format", "output_format", type=click.Choice(["text", "json"]), default="text", help="Output format.")
def command(before: str, after: str, config: str | None, isolated: bool, output_format: str, **options: Any) -> None:
    """Compare the memory of two configs and show which settings cause the difference.

    Each is a file, or a file at a git revision: `gpulint compare main:configs/x.yaml configs/x.yaml`.
    """
    from ..report.text import compare
    from ..run.comparison import differences

    layers = layers_of(config, isolated=isolated, options=options)
    one, two = _side(before, layers), _side(after, layers)
    found = differences(one, two)
    if output_format == "json":
        click.echo(compare.as_json((before, one), (after, two), found))
    else:
        click.echo(compare.render((before, one), (after, two), found, terminal()))


def _side(word: str, layers: Layers) -> Estimated:
    """The first job that a file starts, estimated."""
    from ..estimator.estimate import NotEstimable
    from ..launchers.reading import UnrecognisedError, open_config
    from ..run.estimated import estimated
    from ..run.revision import RevisionError, as_of, split
    from ..settings.settings import SettingsError
    from ..source.document import SourceError

    revision, path = split(word)
    try:
        with as_of(revision, path):
            return estimated(open_config(path, layers.of(path)))
    except UnrecognisedError as error:
        raise Refused(f"{word}: {error if str(error) != path else 'unknown config format'}") from None
    except (NotEstimable, RevisionError) as error:
        raise Refused(f"{word}: {error}") from None
    except (SourceError, SettingsError) as error:
        raise Refused(str(error)) from None
