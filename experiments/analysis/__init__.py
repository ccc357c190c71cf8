"""One module per question that a paper asks; each reads runs and writes JSON."""
