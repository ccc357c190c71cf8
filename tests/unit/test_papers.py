"""experiments/papers/*.yaml: whole tables, consistent with each other, and in a checked form."""

import re
from pathlib import Path

import pytest
import yaml

from experiments import papers
from experiments.papers import exhibits, published

ROOT = Path(papers.__file__).parents[2]
SE = ("iwslt14_de_en", "wmt14_en_de", "wmt13_en_ru")


def value(**wanted) -> float:
    (number,) = published(**wanted)
    return number.value


@pytest.mark.parametrize(
    "place, metric, cells",
    [
        ("SE Table 1", "bleu", 12),
        ("SE Table 1", "parameters", 3),
        ("SE Table 2", "empty_string", 12),
        ("SE Table 3", "tau_batch", 3),
        ("SE Table 3", "tau_formula", 3),
        ("SE Table 3", "support_share", 3),
        ("SE Table 4", "human_score", 4),
        ("SE Table 5", "training_hours", 15),
        ("SE Table 5", "energy", 4),
        ("S2S Table 1", "word_accuracy", 18),
        ("S2S Table 1", "word_accuracy_ensemble", 20),
        ("S2S Table 2", "tokenized_bleu", 18),
        ("S2S Table 3", "attended", 3),
        ("S2S Table 3", "support", 3),
    ],
)
def test_every_cell_of_a_table_is_there(place, metric, cells):
    assert len(published(place=place, metric=metric)) == cells


def test_numbers_of_the_texts():
    assert value(metric="kappa") == 0.56
    assert value(metric="total_score", dataset="iwslt14_de_en") == 1.24
    assert value(metric="total_score", dataset="wmt14_en_de") == 1.09
    single = {n.dataset: n.value for n in published(metric="single_hypothesis")}
    assert single == {"sigmorphon2018_high": 81, "sigmorphon2018_medium": 66}
    certified = {n.dataset: n.value for n in published(metric="certified")}
    assert certified == {"sigmorphon2018_high": 87, "sigmorphon2018_medium": 79}
    speeds = {n.system: n.value for n in published(metric="words_per_second")}
    assert speeds == {"softmax": 14500, "entmax15": 13000, "entmax_bisect": 10500}


@pytest.mark.parametrize("dataset", SE)
def test_totals_of_table_5_are_the_sums_of_its_rows(dataset):
    hours = {n.system: n.value for n in published(dataset=dataset, metric="training_hours")}
    total = hours.pop("total")
    assert total == pytest.approx(sum(hours.values()), abs=0.011)  # the paper rounds the rows
    watts = value(dataset=dataset, metric="power")
    assert value(dataset=dataset, metric="energy") == pytest.approx(total * watts / 1e3, abs=0.01)


def test_tau_of_table_3_follows_from_its_shape():
    from sparse_fairseq.functional import xavier_tau

    for dataset in SE:
        where = {"place": "SE Table 3", "dataset": dataset}
        shape = [int(value(metric=name, **where)) for name in ("d_model", "vocabulary")]
        assert value(metric="tau_formula", **where) == pytest.approx(xavier_tau(*shape), abs=0.005)


def test_branches_of_figure_1_are_all_that_is_possible():
    assert sum(n.value for n in published(place="S2S Figure 1")) == pytest.approx(100)


def test_unreadable_cells_say_so():
    holes = [n for n in published() if n.value is None]
    assert {n.place for n in holes} == {"S2S Table 2", "S2S §4.2"}
    assert all(n.why for n in holes)


def test_every_table_and_figure_is_listed_and_its_module_is_there():
    places = [exhibit.place for exhibit in exhibits()]
    for paper, tables, figures in (("SE", 7, 7), ("S2S", 3, 6)):
        wanted = [f"{paper} Table {i + 1}" for i in range(tables)]
        wanted += [f"{paper} Figure {i + 1}" for i in range(figures)]
        assert set(wanted) <= set(places)
    assert len(places) == len(set(places))
    folder = ROOT / "experiments" / "analysis"
    for exhibit in exhibits():
        assert exhibit.module is None or (folder / f"{exhibit.module}.py").exists()
    text = papers.listing()
    assert "make iwslt14_de_en/report" in text and "relu15 37.3" in text


def test_the_alpha_sweep_is_where_its_systems_are_trained():
    from experiments.config import load_config

    (figure,) = [e for e in exhibits() if e.place == "S2S Figure 4"]
    (best,) = published(metric="best_output_alpha")
    assert figure.targets == ["make iwslt17_de_en_alphas/report"]
    assert best.dataset in figure.datasets and best.value == 1.33
    for dataset in figure.datasets:
        assert f"out{best.value}_att1.5" in load_config(dataset).systems


def test_systems_are_names_that_can_be_run():
    from experiments.config import load_config
    from experiments.systems import system_flags

    not_ours = {"total", "reference", "UZH", "entmax_bisect"}
    for number in published(place="SE Table 1") + published(metric="tau"):
        if number.system and number.system not in not_ours:
            assert system_flags(load_config(number.dataset), number.system)


GOOD = {"paper": "X", "title": "x", "exhibits": [], "numbers": []}
NUMBER = {"id": "a", "place": "X Table 1", "metric": "bleu", "unit": "BLEU", "value": 1.0}


@pytest.mark.parametrize(
    "change, message",
    [
        ({"numbers": [{**NUMBER, "valeu": 2}]}, "x.yaml: a: unknown key valeu"),
        ({"numbers": [NUMBER, NUMBER]}, "a: the id is there twice"),
        ({"numbers": [{**NUMBER, "value": "37.3"}]}, "'37.3' is not a number"),
        ({"numbers": [{**NUMBER, "value": None}]}, "needs a why"),
        ({"numbers": [{"id": "a"}]}, "a: .*missing"),
        ({"exhibits": [{"place": "X", "what": "y", "module": None}]}, "no module, and no why"),
        ({"exhibits": None, "numbers": None, "paper": None}, None),
    ],
)
def test_a_wrong_file_is_refused_by_name(tmp_path, change, message):
    data = {**GOOD, **change}
    if message is None:
        del data["numbers"]
        message = "x.yaml: needs the keys"
    (tmp_path / "x.yaml").write_text(yaml.safe_dump(data))
    with pytest.raises(ValueError, match=message):
        published(folder=tmp_path)


def test_files_keep_the_form_that_readers_compare():
    """One number a line, so that a diff shows which number changed."""
    for path in papers.PAPERS.glob("*.yaml"):
        lines = [line for line in path.read_text().splitlines() if re.match(r"\s+- ", line)]
        assert len(lines) == len(re.findall(r"- \{(?:id|place):", path.read_text()))
