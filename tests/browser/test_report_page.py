"""The report in a real browser: no errors, figures to be seen, sorting, phone, dark mode, CSV."""

import csv
from pathlib import Path

import miniature
import pytest

from experiments.report.__main__ import main

DATASET = "iwslt14_de_en"

# Contrast as WCAG 2 computes it.
CONTRAST = """
const canvas = new OffscreenCanvas(1, 1).getContext("2d", { willReadFrequently: true });
function rgba(text) {
  canvas.clearRect(0, 0, 1, 1);
  canvas.fillStyle = text;
  canvas.fillRect(0, 0, 1, 1);
  return canvas.getImageData(0, 0, 1, 1).data;
}
function light([r, g, b]) {
  const part = (x) => (x /= 255) <= 0.03928 ? x / 12.92 : ((x + 0.055) / 1.055) ** 2.4;
  return 0.2126 * part(r) + 0.7152 * part(g) + 0.0722 * part(b);
}
function contrast(one, other) {
  const [a, b] = [light(one), light(other)];
  return (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
}
"""
LOWEST_OF_TEXTS = """
function behind(element) {
  for (let e = element; e; e = e.parentElement) {
    const colour = rgba(getComputedStyle(e).backgroundColor);
    if (colour[3] === 255) return colour;
  }
  return rgba("white");
}
let lowest = [99, ""];
for (const e of document.querySelectorAll("body *")) {
  const own = [...e.childNodes].some((n) => n.nodeType === 3 && n.textContent.trim());
  if (!own || !e.getClientRects().length || e.closest("script")) continue;
  const style = getComputedStyle(e);
  const ink = e instanceof SVGElement ? style.fill : style.color;
  const ratio = contrast(rgba(ink), behind(e));
  if (ratio < lowest[0]) lowest = [ratio, e.outerHTML.slice(0, 120)];
}
return lowest;
"""
LOWEST_OF_LINES = """
const root = getComputedStyle(document.documentElement);
const ground = rgba(root.getPropertyValue("--card"));
const lines = [...Array(8).keys()].map((n) => rgba(root.getPropertyValue(`--series${n}`)));
return Math.min(...lines.map((line) => contrast(line, ground)));
"""


@pytest.fixture(scope="module")
def path(tmp_path_factory) -> Path:
    systems = (*miniature.SYSTEMS, "relu15_tau5")
    runs = miniature.write_runs(tmp_path_factory.mktemp("report"), systems=systems)
    main([DATASET, "--runs-root", str(runs)])
    return runs / DATASET / "report.html"


def test_no_errors_and_nothing_is_fetched(page, path):
    page.open(path)
    assert page.console() == []
    assert page.run("return performance.getEntriesByType('resource').length") == 0
    assert page.run("return document.title") == "IWSLT14 De→En: report"


@pytest.mark.parametrize("width", [1280, 360])
def test_all_figures_can_be_seen(page, path, width):
    page.size(width, 800, phone=width < 500)
    page.open(path)
    sizes = page.run(
        "return [...document.querySelectorAll('figure .panel')].map(e => {"
        "const inner = e.firstElementChild.getBoundingClientRect(), r = e.getBoundingClientRect();"
        "return [r.width, r.height, inner.width, inner.height]; })"
    )
    assert len(sizes) > 15
    assert all(min(size) > 20 for size in sizes), sizes
    drawn = page.run(
        "return [...document.querySelectorAll('svg')].map(s => s.getBBox())"
        ".map(box => box.width * box.height)"
    )
    assert len(drawn) >= 12 and min(drawn) > 1000


def column(page, table, number):
    return page.run(
        f"return [...document.querySelectorAll('#table-{table} tbody tr')]"
        f".map(row => row.cells[{number}].textContent)"
    )


def measured(page) -> list[float]:
    """BLEU of the systems that were run; the others stay at the end."""
    texts = [text.partition(" ")[0] for text in column(page, "bleu", 2)]
    ran = [text != "not" for text in texts]
    assert ran == sorted(ran, reverse=True)
    return [float(text) for text, done in zip(texts, ran, strict=True) if done]


def test_tables_sort_by_click_and_by_keyboard(page, path):
    page.open(path)
    head = "#table-bleu thead th:nth-child({})"
    before = column(page, "bleu", 0)
    page.click(head.format(3) + " button")
    assert page.run(f"return document.querySelector('{head.format(3)}').ariaSort") == "descending"
    values = measured(page)
    assert values == sorted(values, reverse=True) and values[0] > values[-1]
    page.type(head.format(3) + " button", "\ue007")  # Enter
    assert page.run(f"return document.querySelector('{head.format(3)}').ariaSort") == "ascending"
    assert measured(page) == values[::-1]
    page.type(head.format(2) + " button", " ")
    assert column(page, "bleu", 1)[0] == "37.3"
    assert column(page, "bleu", 1)[-1] == "not published", "what is missing stays at the end"
    page.click(head.format(2) + " button")
    assert column(page, "bleu", 1)[-1] == "not published"
    page.click(head.format(1) + " button")
    assert sorted(before) == sorted(column(page, "bleu", 0))
    sorts = page.run("return [...document.querySelectorAll('#table-bleu th')].map(e => e.ariaSort)")
    assert sorts.count("ascending") == 1 and sorts.count("descending") == 0


@pytest.mark.parametrize("width", [320, 360, 768])
def test_nothing_sticks_out_on_a_phone(page, path, width):
    page.size(width, 740, phone=True)
    page.open(path)
    assert page.run("return document.documentElement.scrollWidth") <= width


def test_the_five_lines_are_on_the_first_screen(page, path):
    page.open(path)
    bottom = "return document.querySelector('.summary').getBoundingClientRect().bottom"
    assert page.run(bottom) < 900


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_texts_can_be_read(page, path, scheme):
    page.media(scheme=scheme)
    page.open(path)
    ground = page.run("return getComputedStyle(document.body).backgroundColor")
    assert (int(ground[4:].split(",")[0]) < 64) == (scheme == "dark")
    ratio, where = page.run(CONTRAST + LOWEST_OF_TEXTS)
    assert ratio >= 4.5, where  # WCAG 2 AA


@pytest.mark.parametrize(("scheme", "least"), [("light", 2), ("dark", 3)])
def test_lines_of_figures_stand_out(page, path, scheme, least):
    # 3 is WCAG 2 for graphics; Okabe and Ito's orange and sky blue have 2.2 on white, and markers.
    page.media(scheme=scheme)
    page.open(path)
    assert page.run(CONTRAST + LOWEST_OF_LINES) >= least
    used = page.run(
        "return [...document.querySelectorAll('#figure-dynamics svg path')]"
        ".map(e => e.style.stroke).filter(c => c.includes('--series'))"
    )
    assert len(set(used)) == 4


def test_print_is_on_white(page, path):
    page.media("print", "dark")
    page.open(path)
    assert (
        page.run("return getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    )
    assert (
        page.run("return getComputedStyle(document.querySelector('.contents')).display") == "none"
    )


def test_csv_links_save_the_data(page, path):
    page.open(path)
    page.run("document.querySelector('#figure-dynamics a.csv').click()")
    saved = page.downloaded(f"{DATASET}_dynamics.csv")
    with saved.open(encoding="utf-8-sig", newline="") as file:
        rows = list(csv.DictReader(file))
    points = [r for r in rows if r["system"] == "entmax15" and r["seed"] == "1"]
    expected = miniature.dynamics("entmax15", 1)["points"]
    assert [float(row["seconds"]) for row in points] == [point["seconds"] for point in expected]
