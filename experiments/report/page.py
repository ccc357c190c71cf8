"""Lays out sections as one HTML file that needs nothing else."""

import base64
import hashlib
import re
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from ..code_digest import report_digest
from .gather import Material
from .sections import build
from .summary import summary

HERE = Path(__file__).parent


def render(material: Material, date: str, command: str | None = None) -> str:
    """The page. Only ``date`` differs between two calls with the same material."""
    # All that comes from data is escaped; only what is marked as HTML by us is not.
    environment = Environment(
        loader=FileSystemLoader(HERE), autoescape=True, undefined=StrictUndefined
    )
    environment.filters["unbroken"] = _unbroken
    script = (HERE / "page.js").read_text(encoding="utf-8")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    label = material.title
    about = material.config.about if material.config else ""
    if material.languages:
        about += f"; here {', '.join(material.languages)} only"
    elif material.lacks_languages:
        about += f"; here only {material.language_count} of them"
    return environment.get_template("page.html.jinja").render(
        title=f"{label}: report",
        heading=f"Sparse outputs on {label}",
        about=about,
        dataset=material.dataset,
        summary=summary(material),
        sections=build(material),
        date=date,
        code=report_digest(),
        command=command or material.make("report"),
        style=Markup((HERE / "page.css").read_text(encoding="utf-8")),
        script=Markup(script),
        script_hash=digest,
    )


def _unbroken(text: str) -> Markup:
    """Names such as 1.5-ReLU and numbers with a deviation are not broken over two lines."""
    pattern = r"\d[\d.]*-(?:ReLU|entmax)|\d[\d.]* ± [\d.]+"
    return Markup(re.sub(pattern, r'<span class="nw">\g<0></span>', str(escape(text))))
