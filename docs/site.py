"""A hook of mkdocs: brings what lies outside of docs/ to the site, and the API from docstrings.

Pages link to each other as GitHub wants it; here the links are turned to where the site has them.
"""

import re
from pathlib import Path

from mkdocs.structure.files import File

ROOT = Path(__file__).parents[1]
LINK = re.compile(r"\]\((?!https?:|#)([^)\s#]+)(#[^)\s]*)?\)")
API = ("functional", "generation")


def on_files(files, config):
    for path, place in _outside().items():
        files.append(_page(config, place, _redirected(path)))
    for name in API:
        module = f"sparse_fairseq.{name}"
        files.append(_page(config, f"api/{name}.md", f"# {module}\n\n::: {module}\n"))
    for path in _pictures():
        files.append(File.generated(config, f"elsewhere/{path.name}", content=path.read_bytes()))
    return files


def on_page_markdown(markdown, page, config, files):
    own = page.file.src_uri
    if own.startswith(("elsewhere/", "api/")) or own == "index.md":
        return markdown
    return _with_links(markdown, ROOT / "docs" / own, own)


def _outside() -> dict[Path, str]:
    """Pages outside of docs/, and where the site has them."""
    names = ["CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md", "CITATION.cff", "LICENSE"]
    found = {ROOT / name: f"elsewhere/{name.removesuffix('.md')}.md" for name in names}
    return {ROOT / "README.md": "index.md", **found}


def _pictures() -> list[Path]:
    return sorted((ROOT / "experiments/bench").glob("*.png"))


def _page(config, place: str, text: str) -> File:
    return File.generated(config, place, content=text)


def _redirected(path: Path) -> str:
    text = path.read_text(encoding="utf-8")
    if path.suffix != ".md":
        return f"# {path.name}\n\n```\n{text}\n```\n"
    return _with_links(text, path, _outside()[path])


def _with_links(text: str, path: Path, place: str) -> str:
    def turned(match: re.Match) -> str:
        target = (path.parent / match[1]).resolve()
        return f"]({_up(place)}{_on_site(target)}{match[2] or ''})"

    return LINK.sub(turned, text)


def _up(place: str) -> str:
    return "../" * place.count("/")


def _on_site(target: Path) -> str:
    outside = _outside()
    if target in outside:
        return outside[target]
    if target in _pictures():
        return f"elsewhere/{target.name}"
    if target.is_relative_to(ROOT / "docs"):
        name = str(target.relative_to(ROOT / "docs"))
        return "index.md" if name == "README.md" else name
    raise SystemExit(f"sparse_fairseq: error: the site has no {target.relative_to(ROOT)}")
