"""The whole report on a miniature tree of runs: numbers, reasons, safety, what is broken."""

import csv
import io
import json
import re
import shutil
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

import miniature
import pytest
from matplotlib.figure import Figure

from experiments.papers import published
from experiments.report import sections
from experiments.report.__main__ import main
from experiments.report.gather import gather
from experiments.report.page import render
from experiments.report.parts import number_text, system_label
from experiments.report.sections.lattice import percent
from experiments.systems import in_order
from sparse_fairseq.errors import UsageError

DATASET = "iwslt14_de_en"
VOID = {"meta", "link", "br", "img", "input"}


class Page(HTMLParser):
    """Tables as texts of cells, links, tags; fails on tags that do not match."""

    def __init__(self, html: str):
        super().__init__()
        self.open, self.rows, self.links, self.ids, self.texts = [], {}, {}, [], []
        self.table = None
        self.feed(html)
        assert self.open == [], f"never closed: {self.open}"

    def handle_starttag(self, tag, attributes):
        attributes = dict(attributes)
        if "id" in attributes:
            self.ids.append(attributes["id"])
        if tag == "table":
            self.table = self.rows.setdefault(attributes["id"].removeprefix("table-"), [])
        if tag == "tr" and self.table is not None:
            self.table.append([])
        if tag in ("td", "th") and self.table:
            self.table[-1].append("")
        if tag == "a" and "download" in attributes:
            self.links[attributes["download"]] = attributes["href"]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        if "id" in dict(attributes):
            self.ids.append(dict(attributes)["id"])

    def handle_endtag(self, tag):
        assert self.open and self.open.pop() == tag, f"</{tag}> closes something else"
        if tag == "table":
            self.table = None

    def handle_data(self, data):
        self.texts.append(data)
        if self.table and {"td", "th"} & set(self.open):
            self.table[-1][-1] += data

    def row(self, table: str, system: str) -> dict[str, str]:
        head, *rows = self.rows[table]
        (found,) = [row for row in rows if re.fullmatch(rf"{system}( [\w’]+)?", row[0])]
        titles = [re.sub(r"(Paper).*", r"\1", title) for title in head]
        return dict(zip(titles, found, strict=True))

    def csv(self, name: str, dataset: str = DATASET) -> list[dict]:
        text = unquote(self.links[f"{dataset}_{name}.csv"].partition(",")[2]).removeprefix("\ufeff")
        return list(csv.DictReader(io.StringIO(text)))

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.texts).split())


def figure(html: str, name: str) -> str:
    start = html.index(f'<figure id="figure-{name}">')
    return html[start : html.index("</figure>", start)]


def report(runs: Path, dataset: str = DATASET) -> str:
    return render(gather(runs, dataset), "some day")


def text_of(runs: Path, dataset: str = DATASET) -> Page:
    """The page for tests that look at no figure: these are filled, but not written, which would
    take most of the time."""
    with pytest.MonkeyPatch.context() as patch:
        empty = '<svg viewBox="0 0 1 1" width="1" height="1"></svg>'
        patch.setattr(Figure, "savefig", lambda _, buffer, **options: buffer.write(empty))
        return Page(report(runs, dataset))


@pytest.fixture(scope="module")
def runs(tmp_path_factory) -> Path:
    systems = (*miniature.SYSTEMS, "relu15_tau5")
    return miniature.write_runs(tmp_path_factory.mktemp("mini"), systems=systems)


@pytest.fixture(scope="module")
def html(runs) -> str:
    return report(runs)


@pytest.fixture(scope="module")
def page(html) -> Page:
    return Page(html)


def test_each_bleu_stands_beside_the_published_one(page):
    # SE Table 1: 37.3; here the mean of 36.75 and 37.05
    assert page.row("bleu", "1.5-ReLU") == {
        "System": "1.5-ReLU relu15",
        "Paper": "37.3",
        "Here": "36.9 ± 0.2",
        "Difference": "−0.4",
        "chrF": "56.9",
    }
    assert page.row("empty_string", "softmax")["Paper"] == "7.50"
    assert page.row("empty_string", "softmax")["Difference"] == "−0.40"


@pytest.mark.parametrize("place", ["SE Table 1", "SE Table 2", "SE Table 3", "SE Table 5"])
def test_every_number_of_the_papers_tables_is_on_the_page(page, place):
    cells = {cell.split(" SE ")[0] for rows in page.rows.values() for row in rows for cell in row}
    shown = {cell.replace(",", "").partition(" ±")[0] for cell in cells}
    numbers = published(dataset=DATASET, place=place)
    assert numbers and place in page.text
    for number in numbers:
        forms = {f"{number.value:.{digits}f}" for digits in range(5)} | {f"{number.value:g}"}
        assert forms & shown, f"{number.id} is missing"


def test_published_numbers_of_the_second_paper(tmp_path):
    runs = miniature.write_runs(tmp_path, "iwslt17_de_en", ("softmax", "sparsemax", "entmax15"))
    page = text_of(runs, "iwslt17_de_en")
    assert page.row("tokenized_bleu", "1.5-entmax")["Paper"] == "26.17 ± 0.13"
    assert page.row("support_output", "1.5-entmax")["Paper"] == "16.13"  # S2S Table 3
    assert page.row("support_attention", "sparsemax")["Paper"] == "3.75"
    assert page.row("training_speed", "softmax")["Paper"] == "14,500"  # S2S §4.2
    assert "cannot be read" in page.row("tokenized_bleu", "softmax")["Paper"]
    assert "S2S Table 2" in page.text


def test_inflection_stands_beside_table_1(tmp_path):
    dataset = "sigmorphon2018_high"
    accuracies = {"out1_att1": 93.0, "out1.5_att2": 94.5}
    page = text_of(*miniature.write_inflection(tmp_path, dataset, accuracies))
    rows = {row[0].rpartition(" ")[2]: row[1:] for row in page.rows["word_accuracy"]}
    assert rows["out1_att1"] == ["93.15", "93.00", "−0.15", "0.200"]
    assert rows["out1.5_att2"] == ["94.05", "94.50", "+0.45", "0.200"]
    assert rows["out2_att2"][1] == "not run: make sigmorphon2018_high/out2_att2"
    rows = {row[0].rpartition(" ")[2]: row[1:] for row in page.rows["word_accuracy_ensemble"]}
    assert rows["out1_att1"] == ["94.20", "94.00", "−0.20", "0.200"]
    assert rows["out1.5_att2"][1] == "not run: make sigmorphon2018_high/out1.5_att2/ensemble"
    assert rows["UZH"] == ["96.00", "of the paper only", "nothing to compare yet", "–"]


def test_accuracy_of_each_language(tmp_path):
    accuracies = {"out1_att1": 93.0, "out1.5_att2": 94.5}
    runs, name = miniature.write_inflection(tmp_path, "sigmorphon2018_high", accuracies)
    second = runs / name / "out1_att1" / "seed2"
    shutil.copytree(second.with_name("seed1"), second)
    scores = json.loads((second / "scores.json").read_text())
    scores["test"]["languages"]["english"]["word_accuracy"] += 1
    miniature.write(second / "scores.json", scores)
    head, *rows = text_of(runs, name).rows["languages"]
    assert head == ["Language", "Test words", "α 1 (attention 1)", "α 1.5 (attention 2)"]
    assert rows[:2] == [
        ["english", "1,000", "96.00", "97.00"],
        ["german", "1,000", "90.50", "92.00"],
    ]
    assert len(rows) == 86


def test_a_single_language_needs_no_table_of_its_own(tmp_path, monkeypatch):
    monkeypatch.setattr(miniature, "LANGUAGES", {"french": 0.0})
    runs, name = miniature.write_inflection(tmp_path, "demo_inflection", {"entmax15": 94.0})
    page = text_of(runs, name)
    assert "languages" not in page.rows and page.row("word_accuracy", "1.5-entmax")


def test_one_seed_needs_no_ensemble(tmp_path):
    """The demo has one; a table of targets that give the same again would help nobody."""
    runs, name = miniature.write_inflection(tmp_path, "demo_inflection", {"entmax15": 94.0})
    assert "word_accuracy_ensemble" in text_of(runs, name).rows
    shutil.rmtree(runs / name / "entmax15" / "ensemble")
    assert "word_accuracy_ensemble" not in text_of(runs, name).rows


def test_search_errors_and_model_errors(page):
    row = page.row("exact_search", "softmax")
    assert list(row.values())[1:] == ["78.0", "93.5", "0.50", "20.0", "8.0", "1.0"]
    row = page.row("exact_search_quality", "softmax")
    assert list(row.values())[1:] == [
        "40.0",
        "39.0",
        "60.0",
        "59.0",
        "0.0",
        "5.0",
        "98.0",
        "95.0",
        "7.0",
    ]
    row = page.row("exact_search_quality_of_proved", "softmax")
    values = ["43.0", "42.5", "63.0", "62.5", "0.0", "3.1", "99.0", "96.0", "6.5"]
    assert list(row.values())[1:] == values
    assert "Each system has its own proved outputs" in page.text


def test_what_the_end_of_a_search_costs(page):
    """Two seeds with the same scores."""
    row = page.row("end_search", "softmax")
    assert list(row.values())[1:] == ["32.6", "35.1", "52.6", "55.1", "98.3", "98.5", "20.0"]


def test_what_the_end_of_a_search_costs_inflection(tmp_path):
    runs, name = miniature.write_inflection(tmp_path, "demo_inflection", {"entmax15": 94.0})
    rules = {
        rule: {"word_accuracy": value, "edit_distance": 1 - value / 100}
        for rule, value in (("full", 90.0), ("ahead", 94.0))
    }
    result = {"split": "test", "sentences": 900, "beam": 5, **rules, "differ": 5.0}
    path = runs / name / "entmax15/seed1/analysis/end_search.json"
    miniature.write(path, miniature.answer("end_search", result, split="test"))
    row = text_of(runs, name).row("end_search", "1.5-entmax")
    assert list(row.values())[1:] == ["90.00", "94.00", "0.100", "0.060", "5.0"]


def points(page, name: str, system: str) -> list[list[float]]:
    """A system's rows of a figure's CSV."""
    rows = (list(row.values()) for row in page.csv(name))
    return [[float(value) for value in values] for first, *values in rows if first == system]


def test_gaps_are_shares_of_all_outputs(page):
    """Three unproved ones of 1,000 have a gap; that of the others is not known."""
    expected = [[0, 93.5], [0.25, 93.6], [0.5, 93.7], [1.5, 93.8]]
    assert points(page, "exact_search_gaps", "softmax") == [pytest.approx(p) for p in expected]


def page_with(tmp_path, result: dict):
    """Of runs in which exact search found this."""
    runs = miniature.write_runs(tmp_path, systems=("softmax",))
    for path in runs.glob(f"{DATASET}/softmax/*/analysis/exact_search.json"):
        miniature.write(path, miniature.answer("exact_search", result, split="test"))
    return text_of(runs)


@pytest.mark.parametrize(("gaps", "middle"), [([0.25, 0.75], "0.50"), ([1, 2, 9], "2.00")])
def test_half_of_the_gaps_are_below_their_median(tmp_path, gaps, middle):
    page = page_with(tmp_path, {**miniature.exact_search("softmax"), "gaps": gaps})
    assert page.row("exact_search", "softmax")["Median gap of the others, nats"] == middle


def test_where_nothing_is_proved_nothing_is_said_of_it(tmp_path):
    result = {**miniature.exact_search("softmax"), "proved": 0.0, "of_proved": None}
    page = page_with(tmp_path, result)
    assert "exact_search_quality" in page.rows
    assert "exact_search_quality_of_proved" not in page.rows


def test_where_all_is_proved_there_are_no_gaps(tmp_path):
    page = page_with(tmp_path, {**miniature.exact_search("softmax"), "proved": 100.0, "gaps": []})
    assert points(page, "exact_search_gaps", "softmax") == [[0, 100]]
    assert "could not be shown" not in page.text


def test_proofs_and_time_against_budget_and_length(page):
    lines = points(page, "exact_search_budget", "softmax")
    assert lines == [[0, 78.0, 1.0], [100, 89.0, 0.9], [400, 93.5, 1.2]]
    times = [row["time, beam 5 = 1"] for row in page.csv("exact_search_figure")]
    assert times[:2] == ["0.8", "1.6"]
    assert "not the seconds of two runs" in page.text


def test_exact_search_of_version_0_2_had_no_times(tmp_path):
    """Nor did it tell apart what is proved."""
    result = miniature.exact_search("softmax")
    del result["by_budget"], result["of_proved"]
    for group in result["by_length"]:
        del group["time"]
    page = page_with(tmp_path, result)
    assert "exact_search_quality_of_proved" not in page.rows
    assert "could not be shown" not in page.text and "figure-exact_search_budget" not in page.ids
    assert [row["proved, %"] for row in page.csv("exact_search_figure")] == ["100.0", "88.75"]


def test_certified_is_about_the_score_that_ranked(page, tmp_path):
    """Beam search divides by length, unless the config says otherwise, as S2S's does."""
    assert page.row("glance", "1.5-entmax")["Certified, %"] == "20.0"
    row = page.row("exactness", "1.5-entmax")
    assert row["Certified by raw score, %"] == "22.0"
    assert row["Certified by length-normalised score, %"] == "20.0"
    runs, name = miniature.write_inflection(tmp_path, "sigmorphon2018_high", {"out2_att2": 94.0})
    result = {"valid": miniature.exactness("sparsemax")}
    path = runs / name / "out2_att2" / "seed1" / "analysis" / "exactness.json"
    miniature.write(path, miniature.answer("exactness", result))
    page = text_of(runs, name)
    rows = {row[0].rpartition(" ")[2]: row for row in page.rows["glance"]}
    assert rows["out2_att2"][page.rows["glance"][0].index("Certified, %")] == "22.0"
    assert page.rows["exactness_paper"][1][1:] == ["87.0", "22.0", "−65.0"]
    assert "ranked by their raw score" in page.text


def test_the_first_table_says_which_data_each_number_is_of(page, tmp_path):
    of_test = "BLEU, chrF, Σp and decoding speed are of the test set"
    of_training = "training speed is of the training set"
    assert f"{of_test}, {of_training}, all else is of the validation set." in page.text
    inflected = miniature.write_inflection(tmp_path, "demo_inflection", {"entmax15": 94.0})
    page = text_of(*inflected)
    assert "Word accuracy and edit distance are of the test set" in page.text
    assert page.row("glance", "1.5-entmax")["Edit distance"] == "0.200"


def test_there_is_no_table_of_runs_without_any(tmp_path):
    runs = miniature.write_runs(tmp_path, seeds=(1,))
    path = runs / DATASET / "analysis" / "tau.json"
    document = json.loads(path.read_text(encoding="utf-8"))
    assert "tau_runs" in text_of(runs).rows
    document["result"] |= {"runs": [], "sweep": []}
    miniature.write(path, document)
    page = text_of(runs)
    assert "tau_runs" not in page.rows and page.rows["tau"]


def test_some_languages_are_shown_like_all_of_them(tmp_path):
    """LANGUAGES= gives the dataset another name, for which there is no config and no target."""
    accuracies = {"out1_att1": 80.0, "out1.5_att2": 84.5}
    options = ("--languages", "english german")
    runs, name = miniature.write_inflection(tmp_path, "sigmorphon2018_medium", accuracies, *options)
    page = text_of(runs, name)
    assert name != "sigmorphon2018_medium" and "could not be shown" not in page.text
    assert "Sparse outputs on SIGMORPHON 2018 (medium: english, german)" in page.text
    assert "here english, german only" in page.text
    assert "Accuracy of inflection S2S Table 1" in page.text
    rows = {row[0].rpartition(" ")[2]: row[1:] for row in page.rows["word_accuracy"]}
    assert rows["out1_att1"] == ["82.55", "80.00", "other data", "0.200"]
    assert "numbers are for SIGMORPHON 2018 (medium), shown for orientation" in page.text
    option = 'LANGUAGES="english german"'
    assert rows["out2_att2"][1] == f"not run: make sigmorphon2018_medium/out2_att2 {option}"
    rows = {row[0].rpartition(" ")[2]: row[1:] for row in page.rows["word_accuracy_ensemble"]}
    assert rows["out1_att1"] == ["85.68", "81.00", "other data", "0.200"]
    target = "sigmorphon2018_medium/out1.5_att2/ensemble"
    assert rows["out1.5_att2"][1] == f"not run: make {target} {option}"
    assert f"make sigmorphon2018_medium/report {option}" in page.text
    assert f"make {name}" not in page.text


def test_many_languages_are_no_other_setting(tmp_path):
    """Twenty names are too long for a directory: the dataset's name does not tell them."""
    names = [f"language{i:02}" for i in range(24)]
    accuracies = {"out1.5_att1.5": 85.0}
    options = ("--languages", " ".join(names))
    runs, name = miniature.write_inflection(tmp_path, "sigmorphon2018_medium", accuracies, *options)
    page = text_of(runs, name)
    assert f"make {name}" not in page.text and names[7] not in name
    assert "Sparse outputs on SIGMORPHON 2018 (medium: 24 languages)" in page.text
    assert "numbers are for SIGMORPHON 2018 (medium), shown for orientation" in page.text
    rows = {row[0].rpartition(" ")[2]: row[1:] for row in page.rows["word_accuracy"]}
    command = f'make sigmorphon2018_medium/out2_att2 LANGUAGES="{" ".join(names)}"'
    assert rows["out2_att2"][1] == f"not run: {command}"


def test_a_part_of_the_files_is_not_compared_with_the_whole(tmp_path, monkeypatch):
    monkeypatch.setattr(miniature, "_languages", lambda config: miniature.LANGUAGES)
    accuracies = {"out1_att1": 93.0}
    page = text_of(*miniature.write_inflection(tmp_path, "sigmorphon2018_high", accuracies))
    rows = {row[0].rpartition(" ")[2]: row[1:] for row in page.rows["word_accuracy"]}
    assert rows["out1_att1"] == ["93.15", "93.00", "other data", "0.200"]
    assert "of all its languages, those here of 2; no difference is taken" in page.text
    assert "here only 2 of them" in page.text and "Paper:" not in page.text


def test_the_setting_counts_the_runs_that_there_are(tmp_path):
    accuracies = {"out1_att1": 93.0}
    page = text_of(*miniature.write_inflection(tmp_path, "sigmorphon2018_high", accuracies))
    assert [row[1:] for row in page.rows["setting"] if row[0].startswith("runs")] == [
        ["3 S2S §4.1", "1", "−2"]
    ]


@pytest.fixture
def inflected(tmp_path) -> tuple[Path, str]:
    """Runs that inflect words, one of them with every analysis."""
    accuracies = {"out1_att1": 93.0, "out1.5_att1.5": 94.5}
    runs, name = miniature.write_inflection(tmp_path, "sigmorphon2018_high", accuracies)
    folder = runs / name / "out1.5_att1.5" / "seed1" / "analysis"
    miniature.write_analyses(folder, "entmax15", 1)
    trees = [miniature.tree(lemma, *found, True) for lemma, found in miniature.WORDS.items()]
    forced = {
        "id": 0,
        "source": ["[english]", "[V]", *"draw", "</s>"],
        "steps": [miniature.step(letter, (letter, 1.0)) for letter in [*"drawn", "</s>"]],
        "segments": [{"start": 0, "end": 6, "text": "d r a w n </s>"}],
    }
    result = {"split": "valid", "forced": [forced], "trees": trees}
    miniature.write(folder / "lattice.json", miniature.answer("lattice", result))
    word = {"source": "[english] [V] d r a w", "reference": "d r a w n ▁ o u t", "spread": 9.0}
    outputs = {"out1.5_att1.5": {"text": "d r a w e d ▁ o u t", "chrf": 60.0}}
    result = miniature.examples(outputs)
    result |= {"sentences": {"7": {**word, "outputs": outputs}}, "widest": [7]}
    path = runs / name / "analysis" / "examples.json"
    miniature.write(path, miniature.answer("examples", result))
    return runs, name


def test_a_report_on_words_speaks_of_words_and_characters(inflected):
    html = report(*inflected)
    page = Page(html)
    assert "Non-zero characters" in page.rows["glance"][0]
    assert "Characters with a non-zero score at a step" in page.text
    assert "Words that prefer the empty string, %" in page.text
    start, end = map(page.text.rindex, ("Systems at a glance", "Published settings"))
    shown = page.text[start:end].lower()
    assert "sentence" not in shown and "translation" not in shown
    assert "human_eval" not in page.ids  # a word is right or wrong
    drawn = figure(html, "lattice")
    assert "[english] [V] draw<" in drawn and ">drawn &lt;/s&gt;<" in drawn
    assert "<strong dir=auto>[V] [PST] draw</strong>" in figure(html, "search_tree")
    examples = figure(html, "examples")
    assert "<dt>word</dt><dd>8</dd>" in examples and ">[english] [V] draw<" in examples
    assert ">drawn out<" in examples and ">draw<mark>ed</mark> out<" in examples


def test_settings_of_inflection_are_compared(inflected):
    page = text_of(*inflected)
    rows = {row[0].partition(" samples ")[0]: row[1:] for row in page.rows["setting"][1:]}
    assert rows["languages"][1:] == ["86", "0"]
    assert [r[1] for n, r in rows.items() if n.startswith("training")] == ["10,000"]
    assert [r[1:] for n, r in rows.items() if n.startswith("validation")] == [["1", "0"]]
    (layers,) = [row for name, row in rows.items() if name.startswith("layers")]
    assert layers[1] == "as --arch sparse_lstm_inflection has it"


def test_the_alpha_sweep_has_two_panels_and_the_papers_mark(tmp_path):
    dataset = "iwslt17_de_en_alphas"
    html = report(miniature.write_runs(tmp_path, dataset, seeds=(1,)), dataset)
    panels = re.findall(r"<svg .*?</svg>", figure(html, "alpha_sweep"), re.DOTALL)
    attention, output = (re.findall(r"<text[^>]*>([^<]*)</text>", panel) for panel in panels)
    assert {"α of the attention", "output α = 1.5"} <= set(attention)
    assert {"α of the output", "attention α = 1.5", "paper’s best 1.33"} <= set(output)
    assert not [label for label in attention if "paper" in label]
    page = Page(html)
    rows = [[float(v) for v in row.values()] for row in page.csv("alpha_sweep", dataset)]
    assert rows == [
        [m["output_alpha"], m["attention_alpha"], m["mean"], m["std"], m["n"]]
        for m in miniature.alpha_sweep()["means"]
    ]
    assert "Sparse outputs on IWSLT17 De→En, grid of α" in page.text


def test_both_panels_of_the_alpha_sweep_have_the_same_scale(tmp_path):
    """Which of the two α matters more is what S2S Figure 4 shows."""
    dataset = "iwslt17_de_en_alphas"
    runs = miniature.write_runs(tmp_path, dataset, seeds=(1,))
    means = miniature.alpha_sweep()["means"]
    cross = [m for m in means if 1.5 in (m["output_alpha"], m["attention_alpha"])]
    path = runs / dataset / "analysis" / "alpha_sweep.json"
    miniature.write(path, miniature.answer("alpha_sweep", {"points": [], "means": cross}))
    drawn = figure(report(runs, dataset), "alpha_sweep")
    panels = re.findall(r"<svg .*?</svg>", drawn, re.DOTALL)
    ticks = [re.findall(r"<text[^>]*>([5-9]\d(?:\.\d+)?)</text>", panel) for panel in panels]
    assert len(ticks[0]) > 2 and ticks[0] == ticks[1]


@pytest.mark.parametrize(
    "dataset, hint",
    [
        ("iwslt17_de_en", "make iwslt17_de_en_alphas, make iwslt17_de_en_alphas/report"),
        ("iwslt14_de_en", "make iwslt14_de_en/entmax1.25, make iwslt14_de_en/entmax1.33"),
    ],
)
def test_a_coarse_alpha_sweep_says_what_makes_a_finer_one(tmp_path, dataset, hint):
    runs = miniature.write_runs(tmp_path, dataset, ("softmax", "sparsemax"), seeds=(1,))
    same = [m for m in miniature.alpha_sweep()["means"] if m["attention_alpha"] == 1.5]
    path = runs / dataset / "analysis" / "alpha_sweep.json"
    miniature.write(path, miniature.answer("alpha_sweep", {"points": [], "means": same}))
    assert hint in text_of(runs, dataset).text


def test_search_trees_of_three_words(page, html):
    """Of the system whose trees are complete and that is best: the words, and what they cost."""
    drawn = figure(html, "search_tree")
    panels = drawn.split('<div class="panel">')[1:]
    ways, ends = '<span class="p">([^<]*)</span>', '<span class="end">([^<]*)</span>'
    spelled = ["".join(re.findall('<span class="word">(.)</span>', panel)) for panel in panels]
    assert spelled == ["drawedn", "sanginged", "put"]
    assert [re.findall(ways, panel) for panel in panels] == [
        ["66.4%", "32.2%", "1.4%"],
        ["87.5%", "12.5%"],
        [],
    ]
    assert [re.findall(ends, panel) for panel in panels] == [
        ["■ 66.4%", "■ 32.2%", "■ 1.4%"],
        ["■ 87.5%", "■ 12.5%"],
        ["■ 100%"],
    ]
    heads = ["3 hypotheses, and no others", "2 hypotheses, and no others", "a single hypothesis"]
    assert all(head in panel for head, panel in zip(heads, panels, strict=True))
    assert "by 1.5-ReLU:" in drawn
    rows = [row for row in page.csv("search_tree") if row["system"] == "relu15"]
    assert [row["hypothesis"] for row in rows] == [
        "drawed",
        "drawn",
        "draw",
        "sang",
        "singed",
        "put",
    ]
    assert {row["system"] for row in page.csv("search_tree")} == {*miniature.SYSTEMS}


def test_trees_that_are_cut_short_give_way(tmp_path):
    runs = miniature.write_runs(tmp_path, systems=("softmax", "sparsemax"), seeds=(1,))
    assert "by sparsemax:" in figure(report(runs), "search_tree")  # whatever softmax's BLEU
    path = runs / DATASET / "sparsemax" / "seed1" / "analysis" / "lattice.json"
    document = json.loads(path.read_text(encoding="utf-8"))
    document["result"]["trees"][0]["complete"] = False
    miniature.write(path, document)
    drawn = figure(report(runs), "search_tree")
    assert drawn.index("a single hypothesis") < drawn.index("search cut short")  # whole ones first
    runs = miniature.write_runs(tmp_path / "dense", systems=("softmax",), seeds=(1,))
    drawn = figure(report(runs), "search_tree")
    assert "by softmax:" in drawn and drawn.count("search cut short") == 3


@pytest.mark.parametrize(
    "score, shown",
    [(0.664, "66.4%"), (0.12, "12.0%"), (0.014, "1.4%"), (1, "100%"), (0, "0%"), (4e-4, "< 0.1%")],
)
def test_chances_have_the_papers_digits(score, shown):
    assert percent(score) == shown


def test_human_evaluation_stands_beside_table_4(tmp_path):
    page = text_of(miniature.write_runs(tmp_path, "wmt13_en_ru"), "wmt13_en_ru")
    row = page.row("human_eval", "reference")
    assert (row["Paper"], row["Here"]) == ("3.90 ± 0.30", "3.90 ± 0.70")
    kappa = page.row("human_eval", "Cohen’s κ")
    assert kappa["Paper"].startswith("0.56") and kappa["Difference"] == "−0.05"
    assert "two.json: incomplete" in page.text


def test_softmax_is_the_baseline_of_comparisons(tmp_path):
    systems = ("relu15", "softmax")
    page = text_of(miniature.write_runs(tmp_path, systems=systems))
    assert page.rows["significance"][1][:5] == ["1.5-ReLU", "softmax", "1", "+1.8", "0.004"]


def test_numbers_of_other_data_are_named_and_not_subtracted(tmp_path):
    page = text_of(miniature.write_runs(tmp_path, "demo_de_en"), "demo_de_en")
    row = page.row("bleu", "softmax")
    assert (row["Paper"], row["Difference"]) == ("35.3", "other data")
    assert "numbers are for IWSLT14 De→En, shown for orientation" in page.text


def test_the_first_screen_has_five_lines(page, html):
    top = html[html.index('<ol class="summary">') : html.index("</ol>")]
    assert top.count("<li>") == 5
    assert "160,239 training pairs of IWSLT14 De→En" in page.text
    assert "1.5-ReLU 36.9 ± 0.2 , 1.5-entmax 36.4 ± 0.2" in page.text
    better = "1.5-ReLU is significantly better than softmax with 2 of 2 seeds"
    assert f"{better} (+1.8, p = 0.004; +1.8, p = 0.004)" in page.text


def change_bleu(runs: Path, change) -> None:
    path = runs / DATASET / "analysis" / "bleu.json"
    document = json.loads(path.read_text(encoding="utf-8"))
    change(document["result"]["test"])
    miniature.write(path, document)


@pytest.mark.parametrize(
    "seeds, verdict",
    [
        ((1, 2), "significantly better than softmax with 1 of 2 seeds (−1.8, p = 0.004; +1.8, "),
        ((1,), "not better than softmax (−1.8, p = 0.004)"),
    ],
)
def test_the_first_screen_does_not_turn_the_test_round(tmp_path, seeds, verdict):
    """The mean over seeds and a seed of the bootstrap may disagree."""

    def worse(test: dict) -> None:
        for pair in test["pairs"]:
            if pair["seed"] == 1:
                pair["difference"] = -abs(pair["difference"])

    runs = miniature.write_runs(tmp_path, seeds=seeds)
    change_bleu(runs, worse)
    assert f"1.5-ReLU is {verdict}" in text_of(runs).text


def test_runs_that_could_not_be_scored_are_named(tmp_path):
    runs = miniature.write_runs(tmp_path)
    change_bleu(runs, lambda test: test.update(problems=["relu15/seed2: no such line"]))
    assert "relu15/seed2: no such line" in text_of(runs).text


def test_bleu_of_an_ensemble_has_a_table(tmp_path, page):
    assert "bleu_ensemble" not in page.rows
    runs = miniature.write_runs(tmp_path)
    path = runs / DATASET / "relu15" / "ensemble"
    shutil.copytree(path.with_name("seed1"), path)
    scores = json.loads((path / "scores.json").read_text())
    scores["test"]["bleu"] = 77.7
    miniature.write(path / "scores.json", scores)
    assert text_of(runs).row("bleu_ensemble", "1.5-ReLU")["Here"] == "77.7"


def test_published_bleu_of_another_kind_says_so(tmp_path):
    dataset = "iwslt17_en_de"
    page = text_of(miniature.write_runs(tmp_path, dataset, seeds=(1,)), dataset)
    assert "Paper (tokenised BLEU): " in page.text


def test_totals_are_of_the_systems_that_the_paper_has(tmp_path):
    dataset = "wmt14_en_de"
    runs = miniature.write_runs(tmp_path, dataset, seeds=(1,))
    for more in ("entmax15_k100", "entmax15_sort"):
        shutil.copytree(runs / dataset / "entmax15", runs / dataset / more)
    page = text_of(runs, dataset)
    # What SE timed was entmax with a full sort.
    timed = ("softmax", "sparsemax", "entmax15_sort", "relu15")
    names = [re.escape(system_label(system)) for system in timed]
    hours = [float(page.row("energy", name)["Here"]) for name in names]
    total = float(page.row("energy_totals", "hours")["Here"])
    assert total == pytest.approx(sum(hours), abs=0.03)


def test_seeds_in_the_csv_are_those_of_the_runs(tmp_path):
    page = text_of(miniature.write_runs(tmp_path, seeds=(3, 5)))
    seeds = {row["seed"] for row in page.csv("bleu_figure") if row["who"] == "here"}
    assert seeds == {"3", "5"}


def test_a_step_without_any_word_is_shown(tmp_path):
    """α-ReLU may give zero to all of them."""
    runs = miniature.write_runs(tmp_path, seeds=(1,))
    path = runs / DATASET / "relu15" / "seed1" / "analysis" / "support.json"
    document = json.loads(path.read_text())
    document["result"]["output"]["gold"]["counts"].insert(0, [0, 3])
    miniature.write(path, document)
    page = text_of(runs)
    assert "could not be shown" not in page.text and "figure-support_figure" in page.ids


def test_why_a_comparison_lacks_a_system(tmp_path):
    runs = miniature.write_runs(tmp_path, systems=("softmax", "relu15"))
    path = runs / DATASET / "analysis" / "bleu.json"
    (runs / DATASET / "entmax15" / "seed1").mkdir(parents=True)
    manifest = json.loads((runs / DATASET / "relu15" / "seed1" / "manifest.json").read_text())
    manifest["stages"] = {}
    miniature.write(runs / DATASET / "entmax15" / "seed1" / "manifest.json", manifest)
    material = gather(runs, DATASET)
    assert material.why("bleu", "entmax15") == "not finished: make iwslt14_de_en/entmax15"
    miniature.write(path, {"analysis": "bleu", "error": "no memory"})
    assert gather(runs, DATASET).why("bleu", "entmax15") == "failed: no memory"


def test_lists_of_next_words_are_compared(page):
    assert [*page.row("keystrokes", "1.5-entmax").values()][1:] == ["55.0", "60.0", "85.0", "40.0"]
    kinds = [row[1] for row in page.rows["keystroke_lists"] if row[0].startswith("1.5-entmax")]
    assert kinds == ["all possible words", "the best 5", "90% of the scores"]
    dense = [row[1] for row in page.rows["keystroke_lists"] if row[0].startswith("softmax")]
    assert dense == kinds[1:]


def test_there_is_a_figure_for_every_module(page):
    figures = {name.removeprefix("figure-") for name in page.ids if name.startswith("figure-")}
    assert figures == {
        *("bleu_figure", "support_figure", "exactness_figure", "exact_search_figure"),
        *("exact_search_gaps", "exact_search_budget", "total_score_figure"),
        *("tau_figure", "dynamics", "inference_time", "alpha_sweep"),
        *("lattice", "search_tree", "attention", "examples", "keystrokes_figure"),
    }
    assert len(page.ids) == len(set(page.ids)), "an id is there twice"


def test_figures_are_text_in_the_pages_colours(html):
    drawings = re.findall(r"<svg .*?</svg>", html, re.DOTALL)
    assert len(drawings) >= 12
    for svg in drawings:
        assert "<text" in svg and "var(--ink)" in svg
        assert not re.search(r"#[0-9a-f]{6}\b", svg), "a stand-in colour is left"


def test_data_of_figures_can_be_saved(page):
    wanted = {f"figure-{name}" for name in ("dynamics", "support_figure", "attention")}
    assert wanted <= set(page.ids)
    points = [row for row in page.csv("dynamics") if row["system"] == "relu15"]
    expected = miniature.dynamics("relu15", 1)["points"] + miniature.dynamics("relu15", 2)["points"]
    assert [float(row["bleu"]) for row in points] == [point["bleu"] for point in expected]
    zeros = [row for row in page.csv("support_figure") if row["system"] == "softmax"]
    assert zeros[0]["nonzeros"] == "9998" and zeros[0]["zeros"] == "0"
    here = {row["System"]: row["Here"] for row in page.csv("bleu")}
    assert float(here["relu15"]) == pytest.approx(36.9)


def test_text_of_data_stays_text(html, page):
    assert miniature.EVIL not in html
    assert html.count("<script>") == 1, "only the page's own script"
    assert page.text.count(miniature.EVIL) > 5
    assert page.row("bleu", "softmax")


def test_nothing_is_fetched(html):
    outside = re.findall(r"""(?:src|href|action|data|poster)\s*=\s*["']?([^"'\s>]+)""", html)
    assert {re.sub("(#|data:).*", r"\1", link) for link in outside} == {"#", "data:"}
    assert not re.search(r"@import|url\((?!#)|fetch\(|XMLHttp|WebSocket|import\(", html)


def test_same_runs_give_the_same_bytes(runs, html):
    again = report(runs)
    assert again == html
    assert again.replace("some day", "2030") == render(gather(runs, DATASET), "2030")


def test_the_command_writes_the_page(runs, capsys):
    main([DATASET, "--runs-root", str(runs)])
    path = runs / DATASET / "report.html"
    made_by = f"python -m experiments.report {DATASET} --runs-root={runs}"
    assert made_by in path.read_text(encoding="utf-8")
    assert capsys.readouterr().out == f"report: {path}\n"
    Page(path.read_text(encoding="utf-8"))
    with pytest.raises(UsageError, match="wmt14_en_de is not there: run make wmt14_en_de first"):
        main(["wmt14_en_de", "--runs-root", str(runs)])


def test_partial_runs_show_what_is_there_and_what_would_make_the_rest(tmp_path):
    runs = miniature.write_runs(tmp_path, systems=("softmax",), seeds=(1,), analyses=False)
    page = text_of(runs)
    assert page.row("bleu", "softmax")["Here"] == "35.0"
    row = page.row("bleu", "1.5-ReLU")
    assert row["Here"] == "not run: make iwslt14_de_en/relu15"
    assert row["Difference"] == "nothing to compare yet"
    assert "not analysed: python -m experiments.analysis.support" in page.text
    assert "python -m experiments.analysis.human_eval draw" in page.text


def test_no_run_at_all(tmp_path):
    (tmp_path / DATASET).mkdir()
    page = text_of(tmp_path)
    assert "Nothing yet on IWSLT14 De→En: make iwslt14_de_en" in page.text
    assert "could not be shown" not in page.text


def test_a_dataset_without_a_config_can_be_shown(tmp_path):
    page = text_of(miniature.write_runs(tmp_path, "gone_xx"), "gone_xx")
    assert page.row("bleu", "softmax")["Here"] == "35.1 ± 0.2"
    assert "could not be shown" not in page.text


def test_why_a_value_is_missing(tmp_path):
    runs = miniature.write_runs(tmp_path, seeds=(1,))
    folder = runs / DATASET / "relu15" / "seed1" / "analysis"
    (folder / "empty_string.json").write_text(
        json.dumps({"analysis": "empty_string", "missing": "not run yet: generate-valid.txt"})
    )
    (folder / "support.json").write_text(
        json.dumps({"analysis": "support", "error": "KeyError: 'decoder'"})
    )
    page = text_of(runs)
    assert page.row("empty_string", "1.5-ReLU")["Here"] == "not run yet: generate-valid.txt"
    assert page.row("support_output", "1.5-ReLU")["Here"] == "failed: KeyError: 'decoder'"
    assert "cannot be measured here: no nvidia-smi" in page.row("energy", "softmax")["kWh"]
    assert page.row("support_output", "softmax")["Here"] == "9,998"


def test_broken_runs_and_files_are_listed_and_hide_nothing(tmp_path, capsys):
    runs = miniature.write_runs(tmp_path, seeds=(1,))
    (runs / DATASET / "sparsemax" / "seed1" / "manifest.json").write_text('{"stages": ')
    (runs / DATASET / "entmax15" / "seed1" / "checkpoints" / "checkpoint_best.pt").unlink()
    (runs / DATASET / "softmax" / "seed1" / "analysis" / "dynamics.json").write_text("[1, 2")
    (runs / DATASET / "softmax" / "seed1" / "scores.json").write_text("{")
    (runs / DATASET / "analysis" / "bleu.json").unlink()
    main([DATASET, "--runs-root", str(runs)])
    page = Page((runs / DATASET / "report.html").read_text(encoding="utf-8"))
    assert f"{DATASET}/sparsemax/seed1: " in page.text and "manifest.json is broken" in page.text
    assert (
        f"{DATASET}/entmax15/seed1: " in page.text and "checkpoint_best.pt is missing" in page.text
    )
    assert "softmax/seed1/analysis/dynamics.json: " in page.text
    assert f"{DATASET}/softmax/seed1/scores.json: " in page.text
    assert "2 broken, see Runs" in page.text
    assert page.row("bleu", "1.5-ReLU")["Here"] == "36.8"
    assert page.row("empty_string", "softmax")["Here"] == "7.10"
    assert "could not be shown" not in page.text
    assert f"left out: {DATASET}/sparsemax/seed1" in capsys.readouterr().err


def test_results_in_another_shape_cost_only_their_section(tmp_path, capsys):
    runs = miniature.write_runs(tmp_path, seeds=(1,))
    for name in ("tau", "examples"):
        path = runs / DATASET / "analysis" / f"{name}.json"
        path.write_text(json.dumps({"result": {"surprise": 1}}))
    page = text_of(runs)
    assert "could not be shown: KeyError" in page.text
    assert page.row("bleu", "softmax") and page.row("energy", "softmax")
    assert "KeyError" in capsys.readouterr().err
    made = sum(text == "How this was made" for text in page.texts)
    assert len(sections.section_makers()) == made + 2  # no command makes setting and runs


def test_systems_are_named_as_in_the_papers():
    assert system_label("relu15") == "1.5-ReLU"
    assert system_label("entmax1.33") == "1.33-entmax"
    assert system_label("relu15_tau0.3") == "1.5-ReLU (τ = 0.3)"
    assert system_label("out1.5_att2") == "α 1.5 (attention 2)"
    order = ["relu15_tau10", "entmax15", "softmax", "relu15_tau2", "relu15", "sparsemax"]
    assert in_order(order) == [
        *("softmax", "sparsemax", "entmax15", "relu15", "relu15_tau2", "relu15_tau10")
    ]


def test_numbers_are_written_as_people_write_them():
    written = [number_text(x, 2) for x in (12345.678, 123.456, 1.005, -0.001, -3.14159)]
    assert written == ["12,346", "123.5", "1.00", "0.00", "−3.14"]
