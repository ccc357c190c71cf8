"""Speed on a GPU, and what was measured where: `make bench-gpu`."""
