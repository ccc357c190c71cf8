"""Triton decides at import whether it interprets or compiles, so a process does one of both:
``interpreted/`` is collected where TRITON_INTERPRET=1 is set, all else where it is not."""

import os

if os.environ.get("TRITON_INTERPRET") == "1":
    collect_ignore_glob = ["test_*.py"]
else:
    collect_ignore_glob = ["interpreted/*"]
