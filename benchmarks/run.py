"""Speed: one table of what this project promises, each beside its bare limit, taken in the same run.

python benchmarks/run.py                    the whole table; some minutes
python benchmarks/run.py --only latest      one row; give it again for more
python benchmarks/run.py --scale small      a glance: sizes too small to judge by
python benchmarks/run.py --json             for scripts
"""

from __future__ import annotations

import argparse
import sys

from ending import ending_what_it_started, folder, number_of, passing_folder
from rows import ROWS
from rows.line import Line
from rows.machine import load, machine_facts
from rows.setting import Scale, Setting
from rows.table import as_json, as_table


def main() -> int:
    """Measure, and print the table or its JSON."""
    options = _parser().parse_args()
    lines: list[Line] = []
    with passing_folder("dispatch-speed-", options.folder) as made:
        facts = machine_facts(made)
        for name, measure in ROWS.items():
            if options.only and name not in options.only:
                continue
            place = made / name
            place.mkdir()
            tell(f"{name} …")
            setting = Setting(name, place, Scale(options.scale), options.repeat, tell)
            lines.extend(measure(setting))
        facts["load_at_end"] = load()
    print(as_json(facts, lines) if options.json else as_table(facts, lines))
    return 0


def tell(text: str) -> None:
    """Say on standard error what is going on: some rows take a minute."""
    print(text, file=sys.stderr, flush=True)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description="Measures what this project promises of its speed.")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--only", metavar="ROW", action="append", choices=list(ROWS), help="this row only; repeatable")
    parser.add_argument(
        "--repeat", metavar="N", type=number_of("pairs"), help="pairs per row (default: what each row needs)"
    )
    parser.add_argument(
        "--scale", choices=[scale.value for scale in Scale], default="full", help="small: a glance, too small to judge"
    )
    parser.add_argument(
        "--folder", metavar="FOLDER", type=folder, help="where to measure: ratios depend on the file system"
    )
    return parser


if __name__ == "__main__":
    with ending_what_it_started():
        sys.exit(main())
