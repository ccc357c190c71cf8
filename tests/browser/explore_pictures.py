"""Takes the pictures of the page of predictive translation for the docs: in Chromium, with a
sentence of ours, on trained runs.

    python tests/browser/explore_pictures.py runs/demo_de_en
"""

import argparse
import base64
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests"), str(ROOT / "tests/browser")]

from browser import Browser, chromium  # noqa: E402
from explore_server import serving  # noqa: E402

from experiments.explore.catalogue import open_runs  # noqa: E402

IMAGES = ROOT / "docs/images"
SENTENCE = "Die Datei konnte nicht auf dem Server gespeichert werden."
ENTER = "\ue007"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("runs", nargs="+", type=Path)
    parser.add_argument("--sentence", default=SENTENCE)
    parser.add_argument("--place", type=int, default=2, help="the word whose list is open")
    parser.add_argument(
        "--draft", default="The file could n", help="what is typed in the second picture"
    )
    options = parser.parse_args()
    entries = open_runs(options.runs)
    with (
        serving(entries) as site,
        tempfile.TemporaryDirectory() as folder,
        chromium(Path(folder)) as browser,
    ):
        take(browser, site.address, options)


def take(browser: Browser, address: str, options: argparse.Namespace) -> None:
    browser.size(1180, 900)
    show(browser, address, options)
    save(browser, "explore", "#cards")
    browser.type("#draft", options.draft)
    browser.wait("return document.querySelector('#ghost span')?.textContent")
    browser.run("document.querySelector('#write').scrollIntoView()")
    save(browser, "explore-write", "#write")
    browser.size(390, 844, phone=True)
    browser.media(scheme="dark")
    show(browser, address, options)
    save(browser, "explore-phone", "#cards article:nth-child(1)")


def show(browser: Browser, address: str, options: argparse.Namespace) -> None:
    """The translations, and the list of one word of the first sparse system."""
    browser.open(address)
    browser.wait("return document.querySelectorAll('#systems input').length")
    browser.type("#source", options.sentence + ENTER)
    browser.wait(
        "return document.querySelectorAll('.target-words').length"
        " === document.querySelectorAll('#systems input:checked').length"
    )
    browser.run(
        "document.querySelectorAll('.card')[arguments[0]].querySelectorAll('.word')[arguments[1]]"
        ".click()",
        0,
        options.place - 1,
    )
    browser.wait("return document.querySelector('.panel li')")


def save(browser: Browser, name: str, last: str) -> None:
    """The page from its top, or from ``last`` if that begins below it, to the end of ``last``."""
    box = browser.run(
        "const b = document.querySelector(arguments[0]).getBoundingClientRect();"
        "return [scrollY + b.top, scrollY + b.bottom, innerWidth]",
        last,
    )
    top = box[0] - 16 if last == "#write" else 0
    clip = {"x": 0, "y": top, "width": box[2], "height": box[1] + 16 - top, "scale": 1}
    picture = browser.cdp(
        "Page.captureScreenshot", format="png", clip=clip, captureBeyondViewport=True
    )
    path = IMAGES / f"{name}.png"
    path.write_bytes(base64.b64decode(picture["data"]))
    print(path)


if __name__ == "__main__":
    main()
