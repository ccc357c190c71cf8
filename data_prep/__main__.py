"""`python -m data_prep --recipe NAME --out DIR`: prepares one dataset from the command line."""

import argparse
import dataclasses
import sys
import typing
from pathlib import Path

from data_prep.acceptance import USUAL, Tolerance
from data_prep.prepare import prepare
from data_prep.spec import CHOICES, DataSpec
from sparse_fairseq.errors import UsageError


def parser() -> argparse.ArgumentParser:
    """Flags are the fields of a DataSpec; a flag that is not given is the recipe's own value."""
    flags = argparse.ArgumentParser(prog="python -m data_prep", description=__doc__)
    types = typing.get_type_hints(DataSpec)
    for field in dataclasses.fields(DataSpec):
        options: dict = {"default": None, "help": field.metadata["help"]}
        kinds = typing.get_args(types[field.name]) or (types[field.name],)
        if field.name == "languages":
            options["nargs"] = "+"
        elif kinds[0] is bool:
            options["action"] = argparse.BooleanOptionalAction
        elif kinds[0] in (int, float):
            options["type"] = kinds[0]
        elif field.name in CHOICES:
            options["choices"] = CHOICES[field.name]
        flags.add_argument(f"--{field.name.replace('_', '-')}", **options)
    flags.add_argument("--out", type=Path, required=True, help="directory of the prepared data")
    flags.add_argument("--raw", type=Path, help="directory of official files to use, not download")
    flags.add_argument(
        "--max-damaged",
        type=float,
        default=USUAL.damaged,
        help="share of a split's pairs that may be damaged, as by bad UTF-8 (default: %(default)s)",
    )
    flags.add_argument(
        "--any-size", action="store_true", help="accept other numbers of pairs than the official"
    )
    flags.add_argument("--jobs", type=int, help="number of processes (default: all cores)")
    return flags


def main() -> None:
    given = vars(parser().parse_args())
    out, raw, jobs = (given.pop(name) for name in ("out", "raw", "jobs"))
    damaged, any_size = given.pop("max_damaged"), given.pop("any_size")
    try:
        tolerance = Tolerance(damaged, any_size)
        data = prepare(DataSpec.from_mapping(given), out, raw, jobs, tolerance)
    except KeyboardInterrupt:
        print("\ninterrupted: the same command goes on from here", file=sys.stderr)
        raise SystemExit(130) from None
    except OSError as error:
        raise UsageError(f"cannot prepare {out}: {error}") from error
    sizes = ", ".join(f"{size:,} {split}" for split, size in data["sizes"].items())
    print(f"{out}: {sizes} pairs")
    ceilings = {split: bleu for split, bleu in data.get("ceiling", {}).items() if bleu is not None}
    if ceilings:
        reached = ", ".join(f"{bleu} BLEU {split}" for split, bleu in ceilings.items())
        print(f"references, tokenised and back (the most a system can reach): {reached}")


if __name__ == "__main__":
    main()
