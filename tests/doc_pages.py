"""The pages of the documentation, and the code blocks in them."""

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
FENCE = re.compile(
    r"(?P<mark><!-- (?:not )?run[^\n]*-->\n)?^```(?P<language>\w*)\n(?P<code>.*?)^```$", re.M | re.S
)


@dataclass(frozen=True)
class Block:
    page: str
    line: int
    language: str
    code: str
    mark: str

    @property
    def runs(self) -> bool:
        """Python is run unless a comment says why not; shell is run if a comment says so."""
        return "not run" not in self.mark if self.language == "python" else "run" in self.mark


def blocks(page: Path) -> list[Block]:
    text = page.read_text(encoding="utf-8")
    name = str(page.relative_to(ROOT))
    return [
        Block(
            name,
            text.count("\n", 0, match.start("code")),
            match["language"],
            match["code"],
            match["mark"] or "",
        )
        for match in FENCE.finditer(text)
    ]


def anchors(page: Path) -> set[str]:
    """The anchors that GitHub gives to a page's headings."""
    text = FENCE.sub("", page.read_text(encoding="utf-8"))
    headings = re.findall(r"^#+ (.*)$", text, re.M)
    plain = (re.sub(r"[`*]|\[([^\]]*)\]\([^)]*\)", r"\1", heading) for heading in headings)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in plain}
