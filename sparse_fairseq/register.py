"""`import sparse_fairseq.register`: registers everything with fairseq, for programs of your own.

fairseq's commands do the same with `--user-dir sparse_fairseq`: fairseq looks for `models` and
`tasks` in that directory and imports them.
"""

from . import models, tasks

__all__ = ["models", "tasks"]
