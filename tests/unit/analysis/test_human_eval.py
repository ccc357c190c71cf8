"""Human evaluation (SE §4.7): what is drawn, what annotators can see, what comes back."""

import json
import math
import random
import re
from pathlib import Path

import miniature
import pytest
from sklearn.metrics import cohen_kappa_score

from experiments.analysis import human_eval
from sparse_fairseq.errors import UsageError

CANDIDATES = ["reference", "softmax", "entmax15", "relu15"]
SYSTEMS = CANDIDATES[1:]


def draw(sentences=600, size=135, shared=45, seed=3):
    return human_eval.draw_samples(sentences, CANDIDATES, size, shared, seed)


def test_two_samples_of_135_share_45():
    first, second = ({item["sentence"] for item in sheet} for sheet in draw().values())
    assert len(first) == len(second) == 135
    assert len(first & second) == 45


def test_every_instance_has_all_candidates_in_an_order_of_its_own():
    sheets = draw()
    for sheet in sheets.values():
        assert all(sorted(item["candidates"]) == sorted(CANDIDATES) for item in sheet)
        first = [item["candidates"][0] for item in sheet]
        # 135 draws of one in four: each name is on top 34 times, give or take 4 deviations of 5
        assert all(14 <= first.count(name) <= 54 for name in CANDIDATES)
    orders = [{i["sentence"]: i["candidates"] for i in sheet} for sheet in sheets.values()]
    shared = orders[0].keys() & orders[1].keys()
    assert any(orders[0][i] != orders[1][i] for i in shared)
    places = [n for n, item in enumerate(sheets[1]) if item["sentence"] in shared]
    assert places != list(range(45)), "the shared sentences must not all come first"


def test_the_seed_decides_the_draw():
    assert draw(seed=3) == draw(seed=3) != draw(seed=4)


def test_exactly_enough_sentences_are_enough():
    assert len(draw(sentences=225)[1]) == 135
    with pytest.raises(ValueError, match="need 225 sentences, there are 224"):
        draw(sentences=224)


def write_runs(root: Path, sentences: int = 12, systems=SYSTEMS) -> list[str]:
    text = root / "data" / "text"
    text.mkdir(parents=True)
    (text / "test.de").write_text("".join(f"Quelle {i}\n" for i in range(sentences)))
    (text / "test.en").write_text(
        "".join(f"truth {i} </script><b>&amp;\n" for i in range(sentences))
    )
    runs = []
    for system in systems:
        run = root / "runs" / "toy" / system / "seed1"
        run.mkdir(parents=True)
        manifest = {
            "config": {"data": {"source": "de", "target": "en"}},
            "data": {"bin": str(root / "data" / "bin"), "text": str(text)},
            "commands": {},
            "stages": {},
        }
        (run / "manifest.json").write_text(json.dumps(manifest))
        guesses = (f"guess {SYSTEMS.index(system)} {i}\n" for i in range(sentences))
        (run / "hypotheses-test.txt").write_text("".join(guesses))
        runs.append(str(run))
    return runs


def write_study(root: Path, *options: str) -> tuple[Path, dict]:
    runs = write_runs(root)
    human_eval.main(["draw", *runs, "--size", "6", "--shared", "3", "--seed", "5", *options])
    folder = root / "runs" / "toy" / "analysis" / "human_eval"
    return folder, json.loads((folder / "key.json").read_text())


def sheet_on(page: str) -> dict:
    return json.loads(re.search(r'id="sheet">(.*?)</script>', page, re.DOTALL)[1])


def test_pages_show_the_sentences_and_not_whose_they_are(tmp_path):
    folder, key = write_study(tmp_path)
    for annotator in ("1", "2"):
        page = (folder / f"annotator{annotator}.html").read_text()
        for name in [*CANDIDATES, str(tmp_path)]:
            assert name not in page, f"{name} is on the page"
        sheet = sheet_on(page)
        assert sheet["study"] == key["study"] and "seed" not in sheet
        for item, hidden in zip(sheet["items"], key["sheets"][annotator], strict=True):
            i = hidden["sentence"]
            said = {"reference": f"truth {i} </script><b>&amp;"}
            said |= {name: f"guess {n} {i}" for n, name in enumerate(SYSTEMS)}
            assert item["source"] == f"Quelle {i}"
            assert item["candidates"] == [said[name] for name in hidden["candidates"]]
    assert key["seed"] == 5


def test_a_key_is_never_overwritten(tmp_path):
    folder, key = write_study(tmp_path)
    runs = [str(tmp_path / "runs" / "toy" / name / "seed1") for name in SYSTEMS]
    with pytest.raises(UsageError, match="exists, and its pages may be in use: give another --out"):
        human_eval.main(["draw", *runs, "--size", "6", "--shared", "3"])
    assert json.loads((folder / "key.json").read_text()) == key


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda runs: [*runs, runs[0]], "another run of softmax is given; choose one seed"),
        (lambda runs: [runs[0] + "x"], "manifest.json is missing"),
        (lambda runs: [*runs, "--split", "valid"], "has no translations of valid"),
        (lambda runs: [*runs, "--size", "8"], "need 13 sentences, there are 12: change --size"),
    ],
)
def test_what_cannot_be_drawn_is_one_clear_line(tmp_path, change, says):
    with pytest.raises(UsageError, match=says):
        human_eval.main(["draw", *change(write_runs(tmp_path)), "--shared", "3"])


def export(path: Path, key: dict, annotator: str, mark) -> Path:
    """What the page would save if ``mark(sentence, system)`` were what the annotator thinks."""
    ratings = {
        str(n): {chr(65 + i): mark(x["sentence"], name) for i, name in enumerate(x["candidates"])}
        for n, x in enumerate(key["sheets"][annotator], 1)
    }
    value = {"study": key["study"], "annotator": int(annotator), "ratings": ratings}
    path.write_text(json.dumps(value))
    return path


def test_marks_come_back_to_their_systems(tmp_path):
    _, key = write_study(tmp_path)
    marks = {"reference": "4", "softmax": "3+", "entmax15": "3-", "relu15": "1"}
    paths = [export(tmp_path / f"{a}.json", key, a, lambda _, s: marks[s]) for a in "12"]
    result = human_eval.evaluate(paths, key)
    means = {name: row["mean"] for name, row in result["systems"].items()}
    assert means == {"reference": 4, "softmax": 3, "entmax15": 3, "relu15": 1}
    refined = {name: row["refined"]["mean"] for name, row in result["systems"].items()}
    assert refined["softmax"] == pytest.approx(10 / 3)
    assert refined["entmax15"] == pytest.approx(8 / 3)
    assert all(row["n"] == 12 and row["std"] == 0 for row in result["systems"].values())
    assert result["kappa"] == 1 and result["kappa_pairs"] == 3 * 4
    assert result["problems"] == []


def test_deviation_is_over_all_marks_of_a_system(tmp_path):
    _, key = write_study(tmp_path)
    one = export(tmp_path / "1.json", key, "1", lambda *_: "2")
    two = export(tmp_path / "2.json", key, "2", lambda *_: "4")
    row = human_eval.evaluate([one, two], key)["systems"]["relu15"]
    assert row["mean"] == 3 and row["std"] == pytest.approx(math.sqrt(12 / 11))


@pytest.mark.parametrize("seed", range(5))
def test_kappa_is_scikit_learns(tmp_path, seed):
    _, key = write_study(tmp_path)
    rng = random.Random(seed)
    thought: dict = {}

    def mark(annotator):
        def of(sentence, system):
            base = thought.setdefault((sentence, system), rng.choice("1234"))
            own = base if rng.random() < 0.6 else rng.choice("1234")
            thought[annotator, sentence, system] = own
            return own + rng.choice(["", "+", "-"])

        return of

    paths = [export(tmp_path / f"{a}.json", key, a, mark(a)) for a in "12"]
    both = [p[1:] for p in thought if p[0] == "1" and ("2", *p[1:]) in thought]
    expected = cohen_kappa_score(*([thought[a, *place] for place in both] for a in "12"))
    result = human_eval.evaluate(paths, key)
    assert result["kappa_pairs"] == len(both) == 12
    assert result["kappa"] == pytest.approx(expected, abs=1e-12)


def test_kappa_by_hand():
    pairs = [(4, 4)] * 20 + [(4, 3)] * 5 + [(3, 4)] * 10 + [(3, 3)] * 15
    # agreement 35/50; by chance 0.5·0.6 + 0.5·0.4
    assert human_eval.cohen_kappa(pairs) == pytest.approx((0.7 - 0.5) / (1 - 0.5))
    assert human_eval.cohen_kappa([(4, 4)] * 5) is None, "no disagreement was possible"
    assert human_eval.cohen_kappa([]) is None


def test_empty_marks_are_counted_and_the_rest_is_used(tmp_path):
    _, key = write_study(tmp_path)
    one = export(tmp_path / "1.json", key, "1", lambda _, s: "" if s == "relu15" else "3")
    two = export(tmp_path / "2.json", key, "2", lambda *_: "3")
    result = human_eval.evaluate([one, two], key)
    assert result["problems"] == [f"{one}: incomplete, 6 translations without a usable mark"]
    assert result["systems"]["relu15"]["n"] == 6 and result["systems"]["softmax"]["n"] == 12
    assert result["kappa_pairs"] == 3 * 3


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (lambda text: text[:40], "not readable as JSON"),
        (lambda text: "[1, 2]", "no export of an annotation page"),
        (
            lambda text: text.replace('"ratings": {', '"ratings": [{').replace("}}}", "}}]}"),
            "no ex",
        ),
        (
            lambda text: re.sub('"study": "[^"]*"', '"study": "other"', text),
            "of study 'other', but",
        ),
        (lambda text: text.replace('"annotator": 1', '"annotator": 7'), "of annotator 7, whom"),
        (lambda text: text.replace('"annotator": 1', '"annotator": 2'), "a second export of anno"),
    ],
)
def test_a_malformed_export_is_named_and_the_other_one_used(tmp_path, spoil, says):
    _, key = write_study(tmp_path)
    bad = export(tmp_path / "bad.json", key, "1", lambda *_: "3")
    bad.write_text(spoil(bad.read_text()))
    good = export(tmp_path / "good.json", key, "2", lambda *_: "4")
    result = human_eval.evaluate([good, bad], key)
    assert result["problems"][0].startswith(f"{bad}: left out, ") and says in result["problems"][0]
    assert result["problems"][1] == "no usable export of annotator 1"
    assert all(row["mean"] == 4 for row in result["systems"].values())
    assert result["kappa"] is None


@pytest.mark.parametrize("mark", ["5", "0", "3++", "three", 3, ["4"], "3,5"])
def test_a_wrong_mark_is_named_with_its_place(tmp_path, mark):
    _, key = write_study(tmp_path)
    target = key["sheets"]["1"][4]
    path = export(
        tmp_path / "1.json",
        key,
        "1",
        lambda i, s: mark if (i, s) == (target["sentence"], "softmax") else "3",
    )
    result = human_eval.evaluate([path], key)
    letter = "ABCD"[target["candidates"].index("softmax")]
    assert f"{path}: sentence 5, translation {letter}: {mark!r} is no mark" in result["problems"][0]
    assert result["systems"]["softmax"]["n"] == 5


def test_unknown_sentences_and_letters_are_named(tmp_path):
    _, key = write_study(tmp_path)
    path = export(tmp_path / "1.json", key, "1", lambda *_: "3")
    value = json.loads(path.read_text())
    value["ratings"]["99"] = {"A": "4"}
    value["ratings"]["1"]["Q"] = "4"
    value["ratings"]["2"] = "4"
    path.write_text(json.dumps(value))
    problems = "\n".join(human_eval.evaluate([path], key)["problems"])
    assert "no sentence '99' on this page" in problems
    assert "sentence 1: there is no translation 'Q'" in problems
    assert "sentence 2: expected marks by letter" in problems


def test_the_command_names_problems_and_writes_the_result(tmp_path, capsys):
    folder, key = write_study(tmp_path)
    good = export(tmp_path / "good.json", key, "2", lambda *_: "4-")
    bad = tmp_path / "bad.json"
    bad.write_text("{")
    human_eval.main(["read", str(good), str(bad), "--key", str(folder / "key.json")])
    said = capsys.readouterr()
    assert f"human_eval: {bad}: left out" in said.err
    assert "κ undefined on 0 translations" in said.out
    result = json.loads((folder.parent / "human_eval.json").read_text())
    assert result["analysis"] == "human_eval" and result["made"]["settings"]["seed"] == 5
    assert result["result"]["systems"]["relu15"]["mean"] == 4
    by_hand = miniature.human(("softmax", "relu15"))  # what tests of the report show must not drift
    assert miniature.form(by_hand) == miniature.form(result["result"])
    with pytest.raises(UsageError, match="no export has a usable mark"):
        human_eval.main(["read", str(bad), "--key", str(folder / "key.json")])
    with pytest.raises(UsageError, match="--key .* no key of a human evaluation"):
        human_eval.main(["read", str(good), "--key", str(good)])
