"""Sparse outputs for fairseq translation models; `--user-dir sparse_fairseq` loads this package.

Importing it registers the criteria and the task with fairseq, and does nothing else. A program
that wants only `sparse_fairseq.functional` never pays for importing fairseq: registration then
waits until fairseq itself is imported.
"""

from . import _registration

__version__ = "0.2.0"

_registration.register_with_fairseq()
