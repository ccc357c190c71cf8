"""Where the project is, and paths as people read them."""

from pathlib import Path

ROOT = Path(__file__).parents[1]


def readable(path: Path) -> str:
    """Relative to the project, where commands are run, if it is inside."""
    path = path.absolute()
    return str(path.relative_to(ROOT) if path.is_relative_to(ROOT) else path)
