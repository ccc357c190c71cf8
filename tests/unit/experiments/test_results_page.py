"""docs/results.md: its tables are what experiments/results has."""

import json
from pathlib import Path

import pytest

from experiments.results_page import PAGE, fill, main

SIGNATURE = "nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:2.6.0"


def measured(system: str, seed: int, bleu: float, **more) -> dict:
    values = {"bleu": bleu, "support": 1234.56, "proved": 90.0, "certified": 3.0}
    used = {"exact_search": {"settings": {"split": "test", "sentences": 500, "budget": 2000}}}
    used["end_search"] = {"settings": {"split": "test"}, "signatures": ["nrefs:1|tok:none"]}
    scores = {"test": {"sentences": 1000, "languages": more.pop("languages", {})}}
    return {
        **{"system": system, "seed": seed, "problem": None, "scores": scores},
        **{"measured": values | more.pop("measured", {}), "analyses": used, **more},
    }


def write_evidence(folder: Path, runs: list[dict], pairs=()) -> Path:
    results = {"dataset": folder.name, "signature": SIGNATURE, "pairs": [*pairs], "runs": runs}
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "results.json").write_text(json.dumps(results))
    for run in runs:
        manifest = {
            "system": run["system"],
            "config": {
                "about": "digits",
                "data": {"languages": ["x", "y"]},
                "generate": {"beam": 5, "lenpen": 1},
            },
            "stages": {"train": {"finished": f"2026-01-0{run['seed']}T03:04:05+00:00"}},
            "git_commit": "0123456789abcdef",
            "versions": {"python": "3.11.2", "torch": "2.13.0", "sacrebleu": "2.6.0"},
            "hardware": {"cpu": "Some processor", "cores": 2, "gpus": []},
        }
        path = folder / run["system"] / f"seed{run['seed']}.manifest.json"
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps(manifest))
    return folder.parent


def page(what: str, old: str = "") -> str:
    return f"# Before\n\n<!-- table: {what} -->\n{old}<!-- end of table -->\n\nAfter.\n"


def rows(text: str) -> list[list[str]]:
    lines = [line for line in text.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def test_the_page_has_what_the_evidence_has():
    main(["--check"])
    assert "<!-- table: demo_de_en" in PAGE.read_text(encoding="utf-8")


def test_means_and_deviations_over_seeds_with_how_they_were_made(tmp_path):
    pair = {"metric": "bleu", "seed": 1, "difference": -3.14, "p_value": 0.002, "samples": 1000}
    runs = [measured("softmax", 1, 30.0), measured("relu15", 1, 32.0), measured("relu15", 2, 34.0)]
    results = write_evidence(
        tmp_path / "d", runs, [{**pair, "baseline": "relu15", "system": "softmax"}]
    )
    text = fill(page("d", "what stood here before\n"), results)
    assert rows(text) == [
        ["system", "seeds", "BLEU", "support", "proved %", "BLEU − softmax, seed 1"],
        ["---"] * 6,
        ["softmax", "1", "30.0", "1,234.6", "90.0", "–"],
        ["relu15", "1, 2", "33.0 ± 1.4", "1,234.6 ± 0.0", "90.0 ± 0.0", "+3.1 (p = 0.002)"],
    ]
    for said in (
        "Of test data: BLEU, proved %.",
        "Of validation data: support.",
        "Proved: exact search after a beam of 5, ",
        "at most 500 sentences, 2,000 prefixes for each",
        "Dataset d (digits); of its languages x, y; 1,000 test outputs; seeds 1, 2; mean ± dev",
        f"decoded with `--beam 5`; BLEU is `{SIGNATURE}`; trained 2026-01-01 to 2026-01-02",
        "commit 0123456; torch 2.13.0, sacrebleu 2.6.0; 2 cores, Some processor.",
        "Source: `experiments/results/d/results.json`.",
    ):
        assert said in text
    assert "what stood here before" not in text
    assert text.startswith("# Before\n\n") and text.endswith("<!-- end of table -->\n\nAfter.\n")
    assert fill(text, results) == text


def test_without_softmax_the_first_system_is_what_others_are_compared_with(tmp_path):
    pair = {"metric": "bleu", "seed": 3, "difference": -0.26, "p_value": 0.3, "samples": 1000}
    pair |= {"baseline": "relu15", "system": "relu15_tau5"}
    runs = [measured("relu15", 3, 30.0), measured("relu15_tau5", 3, 29.7)]
    text = fill(page("d columns=bleu"), write_evidence(tmp_path / "d", runs, [pair]))
    assert rows(text)[0] == ["system", "BLEU", "BLEU − relu15, seed 3"]
    assert [row[2] for row in rows(text)[2:]] == ["–", "−0.3 (p = 0.300)"]
    assert "p is by paired bootstrap" in text


def test_each_seed_is_compared(tmp_path):
    pair = {"metric": "bleu", "baseline": "softmax", "samples": 1000, "p_value": 0.3}
    pairs = [
        {**pair, "system": "relu15", "seed": 2, "difference": 2.0, "p_value": 0.01},
        {**pair, "system": "relu15", "seed": 1, "difference": -1.0},
        {**pair, "system": "relu15", "seed": 1, "metric": "chrf", "difference": 7.0},
        {**pair, "baseline": "entmax15", "system": "softmax", "seed": 2, "difference": 3.0},
    ]
    runs = [measured(s, seed, 30.0) for s in ("softmax", "entmax15", "relu15") for seed in (1, 2)]
    text = fill(page("d columns=bleu"), write_evidence(tmp_path / "d", runs, pairs))
    assert [row[-1] for row in rows(text)[2:]] == [
        *("–", "–, −3.0 (p = –, 0.300)", "−1.0, +2.0 (p = 0.300, 0.010)"),
    ]
    assert rows(text)[0][-1] == "BLEU − softmax, seeds 1, 2"
    assert "p is by paired bootstrap with 1,000 samples." in text


def test_a_difference_that_rounds_to_nothing_has_no_sign(tmp_path):
    pair = {"metric": "bleu", "seed": 1, "difference": -0.04, "p_value": 0.9, "samples": 1000}
    runs = [measured("softmax", 1, 30.0), measured("relu15", 1, 30.0)]
    pairs = [{**pair, "baseline": "softmax", "system": "relu15"}]
    text = fill(page("d columns=bleu"), write_evidence(tmp_path / "d", runs, pairs))
    assert rows(text)[3][-1] == "0.0 (p = 0.900)"


def test_what_only_some_seeds_have_says_of_which(tmp_path):
    def run(system: str, seed: int, *missing: str) -> dict:
        entry = measured(system, seed, 30.0)
        entry["measured"] = {k: v for k, v in entry["measured"].items() if k not in missing}
        return entry

    runs = [run("softmax", 1), run("softmax", 2, "support"), run("softmax", 3, "support")]
    runs += [run("relu15", 1), run("relu15", 2), run("relu15", 3, "support", "proved")]
    text = fill(page("d columns=bleu,support,proved"), write_evidence(tmp_path / "d", runs))
    assert "support (softmax): of seed 1 alone.\nsupport (relu15): of seeds 1, 2 alone." in text
    assert "proved % (relu15): of seeds 1, 2 alone." in text and "BLEU: of" not in text
    both = [run("softmax", 1), run("softmax", 2, "proved")]
    text = fill(page("e columns=proved"), write_evidence(tmp_path / "e", both))
    assert "proved %: of seed 1 alone." in text


def test_bleu_of_an_analysis_must_say_how_it_was_made(tmp_path):
    run = measured("softmax", 1, 30.0, measured={"bleu_full": 20.0})
    del run["analyses"]["end_search"]["signatures"]
    results = write_evidence(tmp_path / "d", [run])
    with pytest.raises(SystemExit, match="d/softmax: its evidence does not say how bleu_full was"):
        fill(page("d columns=bleu_full"), results)
    assert "20.0" not in fill(page("d columns=bleu"), results)


def test_what_was_decoded_otherwise_says_so(tmp_path):
    found = {"bleu_full": 20.0, "bleu_ahead": 21.0, "bleu_of_exact": 22.0}
    run = measured("softmax", 1, 30.0, measured=found)
    run["analyses"]["exact_search"]["signatures"] = ["nrefs:1|tok:none"]
    results = write_evidence(tmp_path / "d", [run])
    manifest = tmp_path / "d/softmax/seed1.manifest.json"
    kept = json.loads(manifest.read_text())
    kept["config"]["generate"] = {"beam": 5, "end-search": "ahead"}
    manifest.write_text(json.dumps(kept))
    assert "decoded with `--beam 5 --end-search ahead`" in fill(page("d columns=bleu"), results)
    text = fill(page("d columns=proved"), results)
    assert "decoded with" not in text and "by the sum of log-scores, the empty" in text
    text = fill(page("d columns=bleu_full,bleu_ahead"), results)
    assert "decoded with `--beam 5`;" in text
    assert rows(text)[0] == ["system", "BLEU of words (fairseq's end)", "BLEU of words (ahead)"]
    assert text.count("`--end-search full` and `ahead`") == text.count("Of words: subwords") == 1
    assert "BLEU of words is `nrefs:1|tok:none`" in text and "tok:13a" not in text
    text = fill(page("d columns=bleu_of_exact"), results)
    assert "BLEU of words, exact: exact search after a beam of 5, at most 500" in text


def test_speeds_of_two_machines_are_not_one_comparison(tmp_path):
    found = {"train_words_per_cpu_second": 1000.0}
    runs = [measured("softmax", seed, 30.0, measured=found) for seed in (1, 2)]
    results = write_evidence(tmp_path / "d", runs)
    chosen = page("d columns=train_words_per_cpu_second")
    assert rows(fill(chosen, results))[2] == ["softmax", "1,000 ± 0"]
    path = tmp_path / "d/softmax/seed2.manifest.json"
    hardware = {"cpu": "Another", "cores": 8, "gpus": []}
    path.write_text(json.dumps({**json.loads(path.read_text()), "hardware": hardware}))
    assert rows(fill(chosen, results))[2] == ["softmax", "–"]
    path = tmp_path / "d/softmax/seed1.manifest.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "hardware": hardware}))
    runs = [measured("relu15", 1, 30.0, measured=found)]
    write_evidence(tmp_path / "e", runs)
    chosen = page("d e columns=train_words_per_cpu_second")
    assert (
        "same machine can be compared: 8 cores, Another: d/softmax; 2 cores, Some processor: e/"
        in (fill(chosen, results))
    )
    assert "same machine" not in fill(page("d columns=bleu"), results)


def test_chosen_columns(tmp_path):
    results = write_evidence(tmp_path / "d", [measured("softmax", 1, 30.0)])
    found = rows(fill(page("d columns=certified,bleu"), results))
    assert found[0] == ["system", "certified %", "BLEU"]
    assert found[2] == ["softmax", "3.0", "30.0"]


def test_curves_have_the_updates_that_most_systems_have(tmp_path):
    curve = [{"updates": 50, "accuracy": 10.0}, {"updates": 100, "accuracy": 20.0}]
    runs = [measured("relu15_tau0", 1, 1.0, curve=curve[:1])]
    runs += [measured("relu15", seed, 1.0, curve=curve) for seed in (1, 2)]
    runs += [measured("relu15_tau5", 1, 1.0, curve=[*curve, {"updates": 117, "accuracy": 30.0}])]
    text = fill(page("d curve=accuracy"), write_evidence(tmp_path / "d", runs))
    assert "decoded with" not in text and "seeds 1, 2" in text
    found = rows(text)
    assert found[0] == ["system", "50", "100"]
    assert found[2:] == [
        ["relu15", "10.0 ± 0.0", "20.0 ± 0.0"],
        ["relu15_tau0", "10.0", "–"],
        ["relu15_tau5", "10.0", "20.0"],
    ]


def test_a_grid_of_two_alphas(tmp_path):
    accuracies = {"out1_att1": 90.0, "out1.5_att1": 91.0, "out1.5_att2": 92.5}
    runs = [
        measured(system, 1, 1.0, measured={"word_accuracy": value})
        for system, value in accuracies.items()
    ]
    found = rows(fill(page("d grid=word_accuracy"), write_evidence(tmp_path / "d", runs)))
    assert found[0][1:] == ["1", "2"]
    assert found[2:] == [["1", "90.00", "–"], ["1.5", "91.00", "92.50"]]


def test_scores_by_language(tmp_path):
    each = {"german": {"word_accuracy": 88.0}, "english": {"word_accuracy": 95.0}}
    whole = measured("softmax", 1, 1.0, languages=each, measured={"word_accuracy": 91.5})
    results = write_evidence(tmp_path / "d", [whole])
    found = rows(fill(page("d languages=word_accuracy"), results))
    assert found[0] == ["system", "mean", "english", "german"]
    assert found[2] == ["softmax", "91.50", "95.00", "88.00"]


def test_rows_of_several_datasets_of_one_system(tmp_path):
    pair = {"metric": "bleu", "seed": 1, "difference": 2.0, "p_value": 0.1, "samples": 1000}
    for name, bleu in (("d", 31.0), ("d_slow", 32.0)):
        runs = [measured("softmax", 2, 30.0), measured("relu15", 1, bleu)]
        write_evidence(tmp_path / name, runs, [{**pair, "baseline": "softmax", "system": "relu15"}])
    text = fill(page("d d_slow system=relu15 columns=bleu"), tmp_path)
    assert rows(text) == [
        ["dataset", "system", "BLEU"],
        ["---"] * 3,
        ["d", "relu15", "31.0"],
        ["d_slow", "relu15", "32.0"],
    ]
    for said in (
        "Of test data: BLEU.\n\n<details ",
        "</summary>\n\nDataset d (digits). Source: `experiments/results/d/results.json`.\n"
        "Dataset d_slow (digits). Source: `experiments/results/d_slow/results.json`.\n"
        "All: of its languages x, y; 1,000 test outputs; seed 1; decoded with",
        "trained 2026-01-01; commit 0123456; torch",
    ):
        assert said in text


def test_rows_of_several_datasets_leave_out_what_only_some_have_compared(tmp_path):
    pair = {"metric": "bleu", "seed": 1, "difference": 2.0, "p_value": 0.1, "samples": 1000}
    pair |= {"baseline": "softmax", "system": "relu15"}
    runs = [measured("softmax", 1, 30.0), measured("relu15", 1, 32.0)]
    write_evidence(tmp_path / "d", runs, [pair])
    write_evidence(tmp_path / "e", runs[:1])
    text = fill(page("d e columns=bleu"), tmp_path)
    assert rows(text)[0] == ["dataset", "system", "BLEU"]
    assert [row[:2] for row in rows(text)[2:]] == [
        ["d", "softmax"],
        ["d", "relu15"],
        ["e", "softmax"],
    ]
    assert "bootstrap" not in text


def test_seeds_are_listed_for_all_datasets_of_a_table_or_for_none(tmp_path):
    runs = [measured("softmax", 1, 30.0), measured("softmax", 2, 30.0), measured("relu15", 1, 3.0)]
    write_evidence(tmp_path / "d", runs)
    write_evidence(tmp_path / "e", runs[:1])
    text = fill(page("d e columns=bleu"), tmp_path)
    assert [row[2] for row in rows(text)[2:]] == ["1, 2", "1", "1"]
    assert "seeds" not in rows(fill(page("e e columns=bleu"), tmp_path))[0]


def test_datasets_with_other_columns_make_no_table(tmp_path):
    write_evidence(tmp_path / "d", [measured("softmax", 1, 30.0)])
    write_evidence(tmp_path / "e", [measured("softmax", 1, 30.0, measured={"chrf": 50.0})])
    with pytest.raises(SystemExit, match="tables of d and e have other columns: choose some"):
        fill(page("d e"), tmp_path)


@pytest.mark.parametrize(
    "what, message",
    [
        ("demo_de_eng", "no evidence of 'demo_de_eng'.*demo_de_en"),
        ("demo_de_en curves=bleu", "no kind of table 'curves'.*curve"),
        ("demo_de_en columns=blue", "table demo_de_en: no column 'blue'.*bleu"),
        ("demo_de_en curve=chrf", "table demo_de_en: chrf was not measured"),
        ("demo_de_en grid=bleu", "table demo_de_en: bleu was not measured"),
        ("demo_de_en columns=bleu curve=bleu", "columns and curve are two tables"),
        ("columns=bleu", "table columns=bleu: of which dataset?"),
        ("demo_de_en system=relu", "table demo_de_en: no system 'relu'.*softmax"),
    ],
)
def test_what_is_not_there_is_an_error(tmp_path, what, message):
    results = write_evidence(tmp_path / "demo_de_en", [measured("softmax", 1, 30.0)])
    with pytest.raises(SystemExit, match=message):
        fill(page(what), results)


def test_a_table_must_end(tmp_path):
    results = write_evidence(tmp_path / "d", [measured("softmax", 1, 30.0)])
    with pytest.raises(SystemExit, match="the table of d has no <!-- end of table --> after it"):
        fill(f"{page('d').replace('<!-- end of table -->', '')}\n{page('d')}", results)


def test_check_finds_a_number_that_was_typed(tmp_path, capsys):
    results = write_evidence(tmp_path / "d", [measured("softmax", 1, 30.0)])
    path = tmp_path / "results.md"
    path.write_text(page("d"))
    main([f"--page={path}", f"--results={results}"])
    main([f"--page={path}", f"--results={results}", "--check"])
    path.write_text(path.read_text().replace("30.0", "31.0"))
    with pytest.raises(SystemExit, match="results.md is not what experiments/results has"):
        main([f"--page={path}", f"--results={results}", "--check"])
