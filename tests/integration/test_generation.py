"""fairseq-generate, fairseq-interactive and --eval-bleu with the task's own generator."""

import math
import re

import pytest
from fairseq_runs import run, together, train

CRITERIA = {
    "softmax": ["--criterion=cross_entropy"],
    "entmax15": ["--criterion=entmax_loss", "--alpha=1.5"],
    "relu15": ["--criterion=alpha_relu_loss", "--alpha=1.5"],
}
BLEU = ["--eval-bleu", '--eval-bleu-args={"beam": 3, "max_len_b": 10}']


@pytest.fixture(scope="module")
def trained(reversal_data, tmp_path_factory):
    """(data, checkpoint of each system, log of each training)"""
    folder = tmp_path_factory.mktemp("generation")
    logs = together(
        *(
            lambda name=name, args=args: train(
                reversal_data, folder / name, *args, *BLEU, "--max-epoch=3"
            )
            for name, args in CRITERIA.items()
        )
    )
    paths = {name: folder / name / "checkpoint_last.pt" for name in CRITERIA}
    return reversal_data, paths, dict(zip(CRITERIA, logs, strict=True))


def generate(data, path, *args, task="sparse_translation", **options):
    common = [data, f"--task={task}", f"--path={path}", "--cpu", "--max-len-b=12"]
    return run("fairseq-generate", *common, *args, **options)


def lines(text: str, kind: str) -> dict[int, list[str]]:
    found = re.findall(rf"^{kind}-(\d+)\t(.*)$", text, re.MULTILINE)
    result: dict[int, list[str]] = {}
    for number, line in found:
        result.setdefault(int(number), []).append(line)
    return result


def test_validation_reports_bleu(trained):
    _, _, logs = trained
    for log in logs.values():
        records = log.records("valid")
        assert len(records) == 3 and all("valid_bleu" in record for record in records)
        assert "E-0" not in log.out


def test_exactness_lines_and_summary(trained, tmp_path):
    data, paths, _ = trained
    printed, filed = together(
        lambda: generate(data, paths["relu15"], "--beam=4", "--nbest=4"),
        lambda: generate(data, paths["entmax15"], "--beam=4", f"--results-path={tmp_path}"),
    )
    hypotheses, exactness = lines(printed.out, "H"), lines(printed.out, "E")
    assert sorted(exactness) == sorted(hypotheses) == list(range(16))
    for number, (line,) in exactness.items():
        entry = dict(pair.split("=") for pair in line.split("\t"))
        assert list(entry) == [
            *("raw", "normalized", "exhaustive", "hypotheses", "status", "proved"),
            *("raw_gap", "normalized_gap", "raw_bound", "normalized_bound", "mass"),
        ]
        finite = [h for h in hypotheses[number] if not h.startswith("-inf")]
        assert int(entry["hypotheses"]) == len(finite)
        assert (entry["status"] == "forced") == (not finite)
    summary = re.findall(r"^Exactness of 16 sentences: certified .*$", printed.out, re.MULTILINE)
    assert len(summary) == 1
    text = (tmp_path / "exactness-test.txt").read_text()
    assert len(lines(text, "E")) == 16 and "Exactness of 16 sentences" in text
    assert len(lines((tmp_path / "generate-test.txt").read_text(), "H")) == 16
    assert not lines(filed.out, "E")


def test_exact_search_enumeration_and_expected_utility(trained):
    data, paths, _ = trained
    search = ["--beam=2", "--unnormalized", "--exact-search", "--exact-budget=2000"]
    plain, exact, useful, refused, raw = together(
        lambda: generate(data, paths["entmax15"], *search[:2]),
        lambda: generate(data, paths["entmax15"], *search),
        lambda: generate(
            data, paths["entmax15"], *search, "--enumerate=0.5", "--decision=mbr", "--utility=bleu"
        ),
        lambda: generate(data, paths["relu15"], "--enumerate=0.5", ok=False),
        lambda: generate(data, paths["relu15"], "--decision=mbr", ok=False),
    )
    for number, (line,) in lines(exact.out, "H").items():
        of_beam = float(lines(plain.out, "H")[number][0].split("\t")[0])
        assert float(line.split("\t")[0]) >= of_beam - 1e-4
    proved = [" ".join(found).count("raw=yes") for found in lines(exact.out, "E").values()]
    before = [" ".join(found).count("raw=yes") for found in lines(plain.out, "E").values()]
    assert sum(proved) >= sum(before)
    for number, (line,) in lines(useful.out, "E").items():
        entry = dict(pair.split("=") for pair in line.split("\t"))
        least = float(entry["mass"].split("..")[0])
        assert least >= 0.5 or int(entry["hypotheses"]) > 20
        # Of 100 if the sentence itself is right.
        probability = 2 ** float(lines(useful.out, "H")[number][0].split("\t")[0])
        assert 100 * probability - 0.01 <= float(entry["expected_utility"]) <= 100.01
    assert refused.code == 1
    assert "--enumerate needs probabilities" in refused.err.splitlines()[-1]
    assert raw.code == 1
    assert "--decision mbr needs probabilities" in raw.err.splitlines()[-1]


def test_what_exact_search_refuses_is_one_line(trained):
    data, paths, _ = trained
    search = ["--exact-search", "--beam=1"]  # fairseq itself wants --nbest = --beam for sampling
    refused = {
        "--sampling": "--exact-search is for beam search",
        "--diverse-beam-groups=1": "--exact-search is for beam search",
        "--diversity-rate=0.5": "--exact-search is for beam search",
        "--match-source-len": "--exact-search is for beam search",
        "--constraints": "--exact-search is for beam search",
        "--exact-budget=-1": "--exact-budget must not be negative",
        "--enumerate=1.5": "--enumerate must be above 0 and at most 1",
        "--enumerate=0.5 --exact-budget=0": "--enumerate needs an --exact-budget above 0",
        "--retain-dropout": "--exact-search needs scores that stay the same",
    }
    found = together(
        *(
            lambda flags=flags: generate(data, paths["entmax15"], *search, *flags.split(), ok=False)
            for flags in refused
        ),
        lambda: generate(data, paths["entmax15"], "--exact-budget=9", ok=False),
    )
    messages = [*refused.values(), "--exact-budget needs --exact-search or --enumerate"]
    for one, message in zip(found, messages, strict=True):
        assert one.code == 1 and "Traceback" not in one.err
        assert one.err.splitlines()[-1].startswith(f"sparse_fairseq: error: {message}")


def test_softmax_prints_what_stock_fairseq_prints(trained):
    data, paths, _ = trained
    for args in (["--beam=5", "--nbest=5", "--lenpen=0.6"], ["--score-reference"]):
        ours, stock = together(
            lambda args=args: generate(data, paths["softmax"], *args),
            lambda args=args: generate(data, paths["softmax"], *args, task="translation"),
        )
        for kind in ("H", "P"):
            one, other = lines(ours.out, kind), lines(stock.out, kind)
            assert one.keys() == other.keys() and len(one) == 16
            for number in one:
                for a, b in zip(one[number], other[number], strict=True):
                    assert_same_line(a, b)
        bleu = r"^Generate test.*$"
        assert re.findall(bleu, ours.out, re.M) == re.findall(bleu, stock.out, re.M)


def assert_same_line(one: str, other: str):
    for a, b in zip(re.split(r"[\t ]", one), re.split(r"[\t ]", other), strict=True):
        assert a == b or math.isclose(float(a), float(b), abs_tol=2e-4)


def test_ensemble_of_all_outputs(trained):
    data, paths, _ = trained
    path = ":".join(map(str, paths.values()))
    found, reference = together(
        lambda: generate(data, path, "--beam=3", "--score-normalization=renormalize"),
        lambda: generate(data, path, "--score-reference", "--unnormalized"),
    )
    assert len(lines(found.out, "H")) == 16
    for number, (line,) in lines(reference.out, "H").items():
        total = float(line.split("\t")[0])
        (positions,) = lines(reference.out, "P")[number]
        assert total == pytest.approx(sum(map(float, positions.split())), abs=1e-2)


def test_forced_sentences_are_counted(trained):
    data, paths, _ = trained
    # Logits of almost zero are all below τ.
    found = generate(data, paths["relu15"], "--temperature=1e6", "--quiet")
    assert not lines(found.out, "E") and not lines(found.out, "H")
    assert "forced 16" in found.out
    assert "16 sentences have no hypothesis with a non-zero score" in found.text


def test_interactive_and_alignment(trained):
    data, paths, _ = trained
    args = [data, "--task=sparse_translation", "--source-lang=src", "--target-lang=tgt", "--cpu"]
    args += ["--max-len-b=10", "--print-alignment", "--beam=4"]
    constrained = ["--constraints", f"--path={paths['entmax15']}"]
    typed = run("fairseq-interactive", *args, *constrained, stdin="1 2 3\t3\n4\n")
    assert [len(x) for x in lines(typed.out, "H").values()] == [1, 1]
    assert len(lines(typed.out, "A")) == 2 and len(lines(typed.out, "C")) == 1
    assert sorted(lines(typed.out, "E")) == [0, 1]


def test_one_line_error(trained):
    data, paths, _ = trained
    found = generate(data, paths["entmax15"], "--min-len=99", ok=False)
    assert found.code == 1 and "Traceback" not in found.err
    message = "sparse_fairseq: error: --min-len 99 is larger than the maximum length 12"
    assert found.err.splitlines()[-1].startswith(message)
