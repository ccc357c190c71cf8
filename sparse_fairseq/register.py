"""`import sparse_fairseq.register`: registers everything with fairseq, for programs of your own.

fairseq's commands do the same with `--user-dir sparse_fairseq`: fairseq looks for `models` and
`tasks` in that directory and imports them.
"""

import logging

# One of fairseq's modules sets up the root logger when it is imported, which is the program's.
_root = logging.getLogger()
_level, _handlers = _root.level, list(_root.handlers)

from . import models, tasks  # noqa: E402

_root.setLevel(_level)
_root.handlers[:] = _handlers

__all__ = ["models", "tasks"]
