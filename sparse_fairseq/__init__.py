"""Sparse outputs for fairseq translation models.

Importing this, or `sparse_fairseq.functional`, registers nothing and imports no fairseq. Two things
register task, criteria, models and schedules: `--user-dir sparse_fairseq` in a fairseq command, and
`import sparse_fairseq.register` in a program.
"""

__version__ = "0.2.0"
