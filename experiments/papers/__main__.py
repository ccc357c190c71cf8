"""`make papers`: every table and figure of the papers, and what makes it."""

from . import listing

print(listing())
