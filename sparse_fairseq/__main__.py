"""`python -m sparse_fairseq`: prints the path for --user-dir."""

from pathlib import Path

print(Path(__file__).parent)
