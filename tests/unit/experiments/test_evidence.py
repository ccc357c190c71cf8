"""What is kept of runs: no path of a machine, no sentence, nothing unfinished, nothing else."""

import json
import re
import shutil
from pathlib import Path

import pytest

from experiments.evidence import ABSOLUTE, MANIFEST_END, RESULTS, copy_evidence, main, strings
from tests.unit.report.miniature import write_runs

REFERENCE = "a reference of more than twenty letters"


@pytest.fixture
def folder(tmp_path) -> Path:
    folder = write_runs(tmp_path, systems=("softmax", "relu15")) / "iwslt14_de_en"
    text = tmp_path / "data/iwslt14_de_en/text"
    text.mkdir()
    (text / "test.en").write_text(f"{REFERENCE}\n")
    return folder


def files(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*.json"))


def change(path: Path, **entries) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text()), **entries}))


def test_results_and_manifests_are_copied_without_the_paths_of_a_machine(folder, tmp_path, capsys):
    commands = [["fairseq-train", f"{tmp_path}/data/iwslt14_de_en/bin", "--lr=0.1"]]
    commands += [["fairseq-generate", f"--path={folder}/softmax/seed1/checkpoints/x.pt"]]
    commands += [["fairseq-generate", "--bpe-codes=/home/somebody/codes,/home/somebody/more"]]
    change(folder / "softmax/seed1/manifest.json", commands={"train": commands})
    out = tmp_path / "out"
    main([str(folder), "--out", str(out)])
    assert (names := files(out)) == [
        *("relu15/seed1.manifest.json", "relu15/seed2.manifest.json", "results.json"),
        *("softmax/seed1.manifest.json", "softmax/seed2.manifest.json"),
    ]
    said = capsys.readouterr().out
    assert all(re.search(rf"{re.escape(str(out / name))}: [\d,]+ bytes", said) for name in names)
    manifest = json.loads((out / "softmax/seed1.manifest.json").read_text())
    assert manifest["data"]["bin"] == "data/iwslt14_de_en/bin"
    assert manifest["commands"]["train"] == [
        ["fairseq-train", "data/iwslt14_de_en/bin", "--lr=0.1"],
        ["fairseq-generate", "--path=runs/iwslt14_de_en/softmax/seed1/checkpoints/x.pt"],
        ["fairseq-generate", "--bpe-codes=…/codes,…/more"],
    ]
    assert str(tmp_path) not in "".join(path.read_text() for path in out.rglob("*.json"))


def test_what_is_not_finished_is_left_out_and_named(folder, tmp_path, capsys):
    change(folder / "softmax/seed2/manifest.json", stages={"train": {}})
    (folder / "relu15/seed2/checkpoints/checkpoint_best.pt").unlink()
    copy_evidence(folder, tmp_path / "out")
    said = capsys.readouterr().out
    assert "left out: iwslt14_de_en/softmax/seed2 is not finished" in said
    assert "seed2/checkpoints/checkpoint_best.pt is missing" in said
    results = json.loads((tmp_path / "out/results.json").read_text())
    assert [(run["system"], run["seed"]) for run in results["runs"]] == [
        ("relu15", 1),
        ("softmax", 1),
    ]
    assert results["systems"]["softmax"]["bleu"]["n"] == 1


@pytest.mark.parametrize("stage", ["train", "generate"])
def test_an_analysis_of_what_the_run_was_before_is_refused(folder, tmp_path, stage):
    """It is about a model that was trained on, or about outputs that are no longer there."""
    path = folder / "softmax/seed1/manifest.json"
    stages = json.loads(path.read_text())["stages"]
    change(path, stages={**stages, stage: {"finished": "2026-01-02T03:04:06+00:00"}})
    with pytest.raises(SystemExit, match=r"is older than .*: python -m exp.*/seed1 --only \w+$"):
        main([str(folder), "--out", str(tmp_path / "out")])
    assert not (tmp_path / "out").exists()


def test_runs_that_are_gone_leave_no_manifest(folder, tmp_path):
    out = tmp_path / "out"
    copy_evidence(folder, out)
    change(folder / "softmax/seed2/manifest.json", stages={})
    copy_evidence(folder, out)
    assert not (out / "softmax/seed2.manifest.json").exists()
    assert (out / "softmax/seed1.manifest.json").exists()


def test_runs_of_another_machine_are_added(folder, tmp_path):
    out, whole = tmp_path / "out", tmp_path / "whole"
    copy_evidence(folder, whole)
    there = tmp_path / "there" / folder.name
    shutil.copytree(folder, there)
    shutil.rmtree(there / "softmax")
    shutil.rmtree(folder / "relu15")
    copy_evidence(folder, out)
    main([str(there), "--out", str(out), "--add"])
    assert files(out) == files(whole)
    results, together = (json.loads((path / "results.json").read_text()) for path in (out, whole))
    assert not results["pairs"]  # nobody compared runs of two machines
    assert {**results, "made": "", "pairs": together["pairs"]} == {**together, "made": ""}


def results_of(out: Path) -> dict:
    return json.loads((out / "results.json").read_text())


def test_a_run_that_is_there_is_replaced_and_its_comparisons_go(folder, tmp_path, capsys):
    """Only what was compared with the old run goes: there is no pair of runs of two machines."""
    out = tmp_path / "out"
    copy_evidence(folder, out)
    before = results_of(out)
    pairs = [
        {"metric": "bleu", "baseline": "softmax", "system": "relu15", "seed": seed}
        for seed in (1, 2)
    ]
    change(out / "results.json", pairs=pairs)
    shutil.rmtree(folder / "softmax")
    shutil.rmtree(folder / "relu15/seed2")
    shutil.rmtree(folder / "analysis", ignore_errors=True)
    scores = json.loads((folder / "relu15/seed1/scores.json").read_text())
    scores["test"]["bleu"] = 1.25
    change(folder / "relu15/seed1/scores.json", **scores)
    main([str(folder), "--out", str(out), "--add"])
    assert "replaced, with what was compared with it: " in capsys.readouterr().out
    after = results_of(out)
    names = [[(run["system"], run["seed"]) for run in found["runs"]] for found in (before, after)]
    assert names[0] == names[1]
    bleu = {(run["system"], run["seed"]): run["measured"]["bleu"] for run in after["runs"]}
    assert bleu["relu15", 1] == 1.25 and bleu["relu15", 2] != 1.25
    assert after["systems"]["relu15"]["bleu"]["mean"] == (1.25 + bleu["relu15", 2]) / 2
    assert after["pairs"] == pairs[1:]


def test_results_say_how_an_analysis_made_its_bleu(folder, tmp_path):
    copy_evidence(folder, tmp_path / "out")
    for run in results_of(tmp_path / "out")["runs"]:
        assert run["analyses"]["end_search"]["signatures"] == ["nrefs:1|tok:none"]
        assert run["analyses"]["support"]["signatures"] == []


def test_results_have_bleu_of_both_splits(folder, tmp_path):
    path = folder / "softmax/seed1/scores.json"
    test = json.loads(path.read_text())["test"]
    change(path, valid={**test, "bleu": 12.5})
    copy_evidence(folder, tmp_path / "out")
    results = results_of(tmp_path / "out")
    (run,) = (r for r in results["runs"] if (r["system"], r["seed"]) == ("softmax", 1))
    assert (run["measured"]["valid_bleu"], run["measured"]["bleu"]) == (12.5, test["bleu"])


def test_comparisons_of_runs_that_are_not_there_are_left_out(folder, tmp_path):
    def compared() -> set[int]:
        copy_evidence(folder, tmp_path / "out")
        return {pair["seed"] for pair in results_of(tmp_path / "out")["pairs"]}

    assert compared() == {1, 2}
    shutil.rmtree(folder / "relu15/seed2")
    assert compared() == {1}


def test_adding_to_nothing_copies(folder, tmp_path):
    main([str(folder), "--out", str(tmp_path / "out"), "--add"])
    copy_evidence(folder, tmp_path / "whole")
    assert files(tmp_path / "out") == files(tmp_path / "whole")


CONFIG = {"data": {"source": "de", "target": "en"}, "train": {"lr": 0.1}}
OTHER = {
    "settings": {"config": {**CONFIG, "train": {"lr": 17}}, "settings": {"lr": 17}},
    # Continued, after which somebody put the config back.
    "settings ": {"config": CONFIG, "settings": {"lr": 17}},
    "settings  ": {
        "config": CONFIG,
        "settings": {"lr": 0.1},
        "stages": {"score": {}, "generate": {"made_from": {"train": ["today"], "beam": 17}}},
    },
    "data": {"data": {"bin": "data/x/bin", "text": "data/x/text", "checksums": {"dict": "17"}}},
    "dataset": {"dataset": "iwslt17_de_en"},
}


@pytest.mark.parametrize("what", OTHER)
@pytest.mark.parametrize("of", ["*/*", "softmax/seed2"])  # all that are new, or one of them
def test_runs_that_differ_in_more_than_system_and_seed_are_not_added(folder, tmp_path, what, of):
    out = tmp_path / "out"
    for path in folder.glob("*/*/manifest.json"):
        change(path, config=CONFIG, settings={"lr": 0.1, "seed": 1})
    copy_evidence(folder, out)
    before = {path: path.read_bytes() for path in out.rglob("*.json")}
    for path in folder.glob(f"{of}/manifest.json"):
        change(path, **OTHER[what])
    shutil.rmtree(folder / "relu15")
    with pytest.raises(
        SystemExit, match=rf"differ in more than system and seed: in {what.strip()}$"
    ):
        main([str(folder), "--out", str(out), "--add"])
    assert {path: path.read_bytes() for path in out.rglob("*.json")} == before


def test_seeds_of_a_system_that_stands_for_other_settings_are_not_added(folder, tmp_path):
    """What a name adds to a config may change with the code: α, τ, the solver."""
    out = tmp_path / "out"
    for path in folder.glob("*/*/manifest.json"):
        settings = {"lr": 0.1, "alpha": 1.5 if "relu15" in str(path) else None}
        change(path, config=CONFIG, settings={**settings, "seed": int(path.parent.name[-1])})
    copy_evidence(folder, out)
    change(folder / "relu15/seed2/manifest.json", settings={"lr": 0.1, "alpha": 17, "seed": 2})
    shutil.rmtree(folder / "relu15/seed1")
    with pytest.raises(SystemExit, match="relu15/seed2.* differ in more than .*: in settings"):
        main([str(folder), "--out", str(out), "--add"])


@pytest.mark.parametrize("key, metric", [("bleu_signature", "BLEU"), ("chrf_signature", "chrF")])
@pytest.mark.parametrize("add", [True, False])
def test_scores_of_another_signature_do_not_stand_together(folder, tmp_path, key, metric, add):
    out, options = tmp_path / "out", ["--add"] if add else []
    if add:
        copy_evidence(folder, out)
        shutil.rmtree(folder / "relu15")
    for path in folder.glob("softmax/*/scores.json"):
        test = json.loads(path.read_text())["test"]
        change(path, test={**test, key: "tok:char"})
    with pytest.raises(SystemExit, match=f"{metric} was not computed alike: .* and tok:char"):
        main([str(folder), "--out", str(out), *options])


def test_runs_of_other_settings_do_not_stand_together(folder, tmp_path):
    for path in folder.glob("*/*/manifest.json"):
        lr = 17 if "softmax" in str(path) else 0.1
        change(path, config={**CONFIG, "train": {"lr": lr}}, settings={"lr": lr})
    with pytest.raises(SystemExit, match="differ in more than system and seed: in settings"):
        main([str(folder), "--out", str(tmp_path / "out")])
    assert not (tmp_path / "out").exists()


def test_an_ensemble_is_added_to_the_seeds_it_is_made_of(folder, tmp_path, capsys):
    """It has no settings of training: it was not trained."""
    out, ensemble = tmp_path / "out", folder / "softmax/ensemble"
    for path in folder.glob("*/*/manifest.json"):
        seed = int(path.parent.name[-1])
        change(path, config=CONFIG, settings={"lr": 0.1, "seed": seed})
    copy_evidence(folder, out)
    shutil.copytree(folder / "softmax/seed1", ensemble)
    change(ensemble / "manifest.json", seed=None, settings={})
    main([str(folder), "--out", str(out), "--add"])
    assert (out / "softmax/ensemble.manifest.json").exists()
    assert "softmax ensemble" in results_of(out)["systems"]
    capsys.readouterr()
    change(folder / "relu15/seed1/manifest.json", settings={"lr": 17, "seed": 1})
    with pytest.raises(SystemExit, match="differ in more than system and seed"):
        main([str(folder), "--out", str(out), "--add"])
    assert "replaced" not in capsys.readouterr().out  # as nothing was


def test_a_sentence_is_refused_before_anything_is_written(folder, tmp_path):
    change(folder / "relu15/seed1/manifest.json", note=f"such as {REFERENCE}!")
    with pytest.raises(SystemExit, match=f"relu15/seed1.manifest.json .*test.en: '{REFERENCE}'"):
        copy_evidence(folder, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_other_files_are_refused(folder, tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out/hypotheses-test.txt").write_text("x\n")
    with pytest.raises(SystemExit, match="hypotheses-test.txt is no evidence of a run"):
        copy_evidence(folder, tmp_path / "out")


def test_a_folder_without_finished_runs_is_an_error(tmp_path):
    with pytest.raises(SystemExit, match="no finished runs in .*/nothing"):
        main([str(tmp_path / "nothing"), "--out", str(tmp_path / "out")])


@pytest.mark.parametrize(
    "path", sorted(filter(Path.is_file, RESULTS.rglob("*"))), ids=lambda p: p.name
)
def test_what_is_committed_is_evidence_only(path):
    assert re.fullmatch(rf"results\.json|(seed\d+|ensemble){re.escape(MANIFEST_END)}", path.name)
    named = [text for text in strings(json.loads(path.read_text())) if ABSOLUTE.search(text)]
    assert not named
