"""Checks the flags of a config against fairseq's own parser, before anything is started."""

import logging
import warnings

from sparse_fairseq.errors import UsageError

from .config import unknown


def check_train_command(command: list[str], where: str) -> None:
    """Refuses flags that fairseq-train does not know, with the nearest one that it does."""
    logging.getLogger("fairseq").setLevel(logging.WARNING)  # it greets whoever imports it
    warnings.simplefilter("ignore")
    from fairseq import options

    import sparse_fairseq  # noqa: F401  registers our task, criteria and models

    parser = options.get_training_parser()
    arguments = [word for word in command[1:] if not word.startswith("--user-dir")]
    # Adds the flags of task, architecture, criterion, optimizer and schedule to the parser.
    options.parse_args_and_arch(parser, input_args=arguments, parse_known=True)
    known = parser._option_string_actions
    for word in arguments:
        flag = word.partition("=")[0]
        if flag.startswith("--") and flag not in known:
            names = [name.removeprefix("--") for name in known if name.startswith("--")]
            raise UsageError(f"{where}: train: {unknown('flag', flag.removeprefix('--'), names)}")
