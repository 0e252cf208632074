"""The rows of a table: head, query."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table
from rich.text import Text

from hudi_ingest.cli.app import AsJson, PipelineName, app, clock, err, named_pipeline, out, print_json
from hudi_ingest.exceptions.problems import counted

if TYPE_CHECKING:
    from hudi_ingest.operations.rows import Rows


@app.command()
def head(
    name: PipelineName,
    limit: Annotated[int, typer.Option("-n", min=1, max=10_000, help="Maximum number of rows.")] = 10,
    as_json: AsJson = False,
) -> None:
    """Show a few rows of the table, of its newest commit, in no particular order. Starts no Spark and changes nothing."""
    from hudi_ingest.operations.rows import first_rows

    with clock():
        rows = first_rows(named_pipeline(name), limit)
    _show(rows, as_json)


@app.command()
def query(
    name: PipelineName,
    statement: Annotated[
        str, typer.Argument(metavar="SELECT", help="A SELECT in DuckDB's SQL; the table has the pipeline's name in it.")
    ],
    limit: Annotated[int, typer.Option("-n", min=1, max=100_000, help="Maximum number of rows to show.")] = 1000,
    seconds: Annotated[float, typer.Option(min=0.1, help="How long the query may take.")] = 60,
    as_json: AsJson = False,
) -> None:
    """Ask for rows of the table's newest commit in SQL. Reads the whole table, with DuckDB; starts no Spark and changes nothing.

    --json has decimals with digits after the point as texts, which keeps all digits, and other numbers as such."""
    from hudi_ingest.operations.rows import answer

    with clock():
        rows = answer(named_pipeline(name), statement, limit, seconds)
    _show(rows, as_json)


def _show(rows: Rows, as_json: bool) -> None:
    from hudi_ingest.cli.sample_view import MOST_COLUMNS, value_text
    from hudi_ingest.operations.sample import as_json as json_value

    found = rows.table.to_pydict()
    count = rows.table.num_rows
    if as_json:
        print_json([{name: json_value(values[row]) for name, values in found.items()} for row in range(count)])
    elif 0 < len(found) <= MOST_COLUMNS:
        table = Table()
        for name in found:
            table.add_column(Text(name))
        for row in range(count):
            table.add_row(*(Text(value_text(values[row])) for values in found.values()))
        out.print(table)
    else:
        for row in range(count):
            out.print(Text(", ".join(f"{name}: {value_text(values[row])}" for name, values in found.items())))
    more = "; there are more, which -n shows" if rows.more else ""
    err.print(f"{counted(count, 'row')}{more}", style="dim", markup=False)
