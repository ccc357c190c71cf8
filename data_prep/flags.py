"""`python -m data_prep.flags BIN`: the flags with which fairseq takes and gives raw text."""

import shlex
import sys

from data_prep.segmentation import interactive_flags
from sparse_fairseq.errors import UsageError

if __name__ == "__main__":
    if len(sys.argv) != 2:
        raise UsageError("usage: python -m data_prep.flags BIN, as in data/mine/bin")
    print(shlex.join(interactive_flags(sys.argv[1])))
