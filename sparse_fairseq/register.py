"""`import sparse_fairseq.register`: registers everything with fairseq, for programs of your own.

fairseq's commands do the same with `--user-dir sparse_fairseq`: fairseq looks for `models` and
`tasks` in that directory and imports them.
"""

import logging

# Modules of fairseq set up the root logger when they are imported, unless it has a handler. It is
# the program's: one that does nothing keeps it as it was, and the import silent.
_handler = logging.NullHandler()
logging.getLogger().addHandler(_handler)

from . import models, tasks  # noqa: E402

logging.getLogger().removeHandler(_handler)

__all__ = ["models", "tasks"]
