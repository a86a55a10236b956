"""What a benchmark measured, as a table or as JSON."""

import json
from typing import Any

Row = dict[str, Any]


def table(rows: list[Row]) -> str:
    """Lay rows out in columns."""

    def shown(value: object) -> str:
        return f"{value:.4g}" if isinstance(value, float) else "" if value is None else str(value)

    columns = list(rows[0])
    cells = [columns, *([shown(row[column]) for column in columns] for row in rows)]
    widths = [max(len(line[at]) for line in cells) for at in range(len(columns))]
    aligned = [
        [
            cell.ljust(width) if at == 0 else cell.rjust(width)
            for at, (cell, width) in enumerate(zip(line, widths, strict=True))
        ]
        for line in cells
    ]
    return "\n".join("  ".join(line) for line in aligned)


def tell(setting: Row, rows: list[Row], *, as_json: bool) -> None:
    """Print what was measured, and on what."""
    if as_json:
        print(json.dumps({**setting, "rows": rows}, indent=1))
        return
    for key, value in setting.items():
        print(f"{key:16} {value}")
    print(table(rows))
