"""Flags of fairseq's searches that exclude or need each other.

fairseq's build_generator asserts them or raises ValueErrors; checked before it is called, they are
errors of the user, and what it raises all the same is an error of the program.
"""

from .errors import GenerationError


def check_search_flags(args) -> None:
    chosen = {
        "--sampling": bool(getattr(args, "sampling", False)),
        "--diverse-beam-groups": getattr(args, "diverse_beam_groups", -1) > 0,
        "--match-source-len": bool(getattr(args, "match_source_len", False)),
        "--diversity-rate": getattr(args, "diversity_rate", -1) > 0,
    }
    names = [name for name, given in chosen.items() if given]
    if len(names) > 1:
        raise GenerationError(f"{' and '.join(names)} are mutually exclusive")
    for name, value in (
        ("--sampling-topk", getattr(args, "sampling_topk", -1)),
        ("--sampling-topp", getattr(args, "sampling_topp", -1.0)),
    ):
        if value >= 0 and not chosen["--sampling"]:
            raise GenerationError(f"{name} requires --sampling")
