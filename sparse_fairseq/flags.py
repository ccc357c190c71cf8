"""`python -m sparse_fairseq.flags`: every flag that we add to fairseq's commands.

`fairseq-train --help` answers before it has looked at --task, --criterion and --arch, and so it
shows none of their flags.
"""

import argparse
import dataclasses
import textwrap
from collections.abc import Iterator
from typing import NamedTuple

from . import register as register  # before fairseq, which it keeps silent


class Flag(NamedTuple):
    name: str
    default: object  # None: the architecture's
    help: str


def our_flags() -> Iterator[tuple[str, list[Flag]]]:
    """Each choice that is ours, as in `--criterion entmax_loss`, with the flags that it adds."""
    from fairseq.criterions import CRITERION_DATACLASS_REGISTRY
    from fairseq.models import MODEL_REGISTRY
    from fairseq.tasks import TASK_DATACLASS_REGISTRY

    configs = {"--task": TASK_DATACLASS_REGISTRY, "--criterion": CRITERION_DATACLASS_REGISTRY}
    for choice, registry in configs.items():
        for name, config in sorted(registry.items()):
            if _is_ours(config):
                yield f"{choice} {name}", list(_of_config(config))
    for name, model in sorted(MODEL_REGISTRY.items()):
        if _is_ours(model):
            yield f"--arch {name}", list(_of_model(model))


def _is_ours(thing: type | None) -> bool:
    return thing is not None and thing.__module__.startswith(f"{__package__}.")


def _stock(thing: type) -> list[type]:
    return [base for base in thing.__mro__ if base.__module__.startswith("fairseq.")]


def _of_config(config: type) -> Iterator[Flag]:
    bases = [base for base in _stock(config) if dataclasses.is_dataclass(base)]
    known = {field.name for base in bases for field in dataclasses.fields(base)}
    for field in dataclasses.fields(config):
        if field.name not in known and (text := field.metadata.get("help")):
            yield Flag(f"--{field.name.replace('_', '-')}", field.default, text)


def _of_model(model: type) -> Iterator[Flag]:
    ours, theirs = (argparse.ArgumentParser(add_help=False) for _ in range(2))
    model.add_args(ours)
    _stock(model)[0].add_args(theirs)
    known = {action.dest for action in theirs._actions}
    for action in ours._actions:
        if action.dest not in known:
            yield Flag(action.option_strings[0], action.default, action.help or "")


def main() -> None:
    lines = []
    for choice, flags in our_flags():
        lines.append(choice)
        for flag in flags:
            known = flag.default is not None and flag.default is not argparse.SUPPRESS
            lines.append(f"  {flag.name}{f' (default: {flag.default})' if known else ''}")
            lines.append(textwrap.indent(textwrap.fill(flag.help, 90), " " * 6))
    print("\n".join(lines))  # at once, for a reader like head that leaves early


if __name__ == "__main__":
    main()
