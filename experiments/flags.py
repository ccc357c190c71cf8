"""Checks the flags of a config against fairseq's own parsers, before anything is started."""

import logging
import warnings

from sparse_fairseq.errors import UsageError

from .config import unknown

# Which section of a config the flags of a command come from.
SECTIONS = {"fairseq-train": "train", "fairseq-generate": "generate"}


def check_command(command: list[str], where: str) -> None:
    """Refuses flags that fairseq does not know, with the nearest one that it does."""
    section = SECTIONS.get(command[0])
    if section is None:
        return
    arguments = [word for word in command[1:] if not word.startswith("--user-dir")]
    known = _known_flags(section, arguments)
    for word in arguments:
        flag = word.partition("=")[0]
        if flag.startswith("--") and flag not in known:
            names = [name.removeprefix("--") for name in known if name.startswith("--")]
            wrong = unknown("flag", flag.removeprefix("--"), names)
            raise UsageError(f"{where}: {section}: {wrong}")


def _known_flags(section: str, arguments: list[str]) -> list[str]:
    logging.getLogger("fairseq").setLevel(logging.WARNING)  # it greets whoever imports it
    warnings.simplefilter("ignore")
    from fairseq import options

    import sparse_fairseq.register  # noqa: F401

    makers = {"train": options.get_training_parser, "generate": options.get_generation_parser}
    parser = makers[section]()
    # Adds the flags of task, architecture, criterion, optimizer and schedule to the parser.
    options.parse_args_and_arch(parser, input_args=arguments, parse_known=True)
    return list(parser._option_string_actions)
