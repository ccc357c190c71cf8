"""What the task builds for decoding, and what it prints for fairseq-generate."""

from argparse import Namespace

import pytest
import torch
from tiny_fairseq import make_batch, make_dataset, make_model, make_task

from sparse_fairseq.errors import UsageError
from sparse_fairseq.generation import (
    SparseSequenceGenerator,
    SparseSequenceGeneratorWithAlignment,
    SparseSequenceScorer,
)
from sparse_fairseq.generation.exact_search import EXACT_BUDGET
from sparse_fairseq.generation.report import ExactnessReport
from sparse_fairseq.output_transform import OutputSettings


@pytest.fixture(scope="module")
def task():
    return make_task()


@pytest.fixture(scope="module")
def model(task):
    return make_model(task)


def build(task, model, **args):
    return task.build_generator([model], Namespace(**args))


def command_task(**config):
    """As fairseq-generate and fairseq-interactive set it up."""
    task = make_task(**config)
    task.serves_command = True
    return task


def test_generators(task, model):
    assert type(build(task, model)) is SparseSequenceGenerator
    aligned = build(task, model, print_alignment="soft")
    assert type(aligned) is SparseSequenceGeneratorWithAlignment
    assert type(build(task, model, score_reference=True)) is SparseSequenceScorer


def test_flags_arrive(model):
    flags = {"score_normalization": "renormalize", "end_search": "ahead"}
    task, program = command_task(**flags), make_task(**flags)
    args = {"beam": 7, "nbest": 3, "lenpen": 0.5, "unkpen": 2.0, "min_len": 2, "unnormalized": True}
    generator = build(task, model, **args)
    assert (generator.beam_size, generator.nbest, generator.min_len) == (7, 3, 2)
    assert (generator.ranking.normalize, generator.ranking.len_penalty) == (False, 0.5)
    assert generator.rules.unk_penalty == 2.0
    assert generator.score_normalization == "renormalize" and generator.end_search == "ahead"
    assert build(program, model, beam=7, nbest=3).nbest == 7  # it may use them all
    assert build(task, model, beam=7).nbest == 1  # --eval-bleu
    assert generator.exact_budget == 0 and generator.decision == "map"
    flags = {"exact_search": True, "exact_budget": 9, "decision": "mbr", "utility": "bleu"}
    generator = build(command_task(**flags), model, beam=2, nbest=5)
    assert (generator.exact_budget, generator.nbest) == (9, 5)  # --nbest may be above --beam
    assert (generator.decision, generator.utility) == ("mbr", "bleu")
    generator = build(command_task(enumerate=0.9), model, beam=2)
    assert (generator.exact_budget, generator.enumerate_mass) == (EXACT_BUDGET, 0.9)
    scorer = build(task, model, score_reference=True, unnormalized=True)
    assert scorer.score_normalization == "renormalize" and not scorer.normalize_scores
    assert build(task, model, score_reference=True).normalize_scores


@pytest.mark.parametrize(
    "args, message",
    [
        ({"sampling_topk": 3}, "--sampling-topk requires --sampling"),
        ({"temperature": 0.0}, "--temperature must be greater than 0"),
        ({"sampling_topp": 0.9}, "--sampling-topp requires --sampling"),
        (
            {"sampling": True, "match_source_len": True},
            "--sampling and --match-source-len are mutually exclusive",
        ),
        ({"beam": 0}, "--beam must be at least 1, got 0"),
        ({"lenpen": float("nan")}, "--lenpen must be within ±100.0, got nan"),
        ({"beam": 5, "diverse_beam_groups": 2}, "--diverse-beam-groups 2 does not divide"),
        ({"beam": 24, "diverse_beam_groups": 2}, "the beam of 23"),  # padding has no place in it
        ({"sampling": True, "sampling_topk": 25}, "--sampling-topk 25 is larger than .* of 24"),
        ({"beam": 13, "diversity_rate": 0.5}, "--diversity-rate .*: use --beam 12 or less"),
    ],
)
def test_errors_are_one_line(task, model, args, message):
    with pytest.raises(UsageError, match=message):
        build(task, model, **args)


def test_a_bug_is_no_error_of_the_user(task, model):
    """Nothing but what the generator refuses becomes one line: a bug keeps its traceback."""

    class Broken(SparseSequenceGenerator):
        def __init__(self, *args, **kwargs):
            raise error

    for error in (ValueError("a bug"), AssertionError()):
        with pytest.raises(type(error)):
            task.build_generator([model], Namespace(), seq_gen_cls=Broken)


@pytest.mark.parametrize(
    "args",
    [
        {"beam": 24, "diverse_beam_groups": 23},
        {"sampling": True, "sampling_topk": 24},
        {"sampling": True, "sampling_topk": 25, "sampling_topp": 0.9},
        {"beam": 12, "diversity_rate": 0.5},
    ],
)
def test_largest_values_that_work(task, model, args):
    generator = build(task, model, **args, max_len_b=3)
    assert all(generator.generate([model], make_batch(task, sentences=2)))


@pytest.mark.parametrize("flag", ["print_step", "retain_iter_history"])
@pytest.mark.parametrize("kind", [{}, {"score_reference": True}])
def test_flags_of_iterative_refinement(task, model, flag, kind):
    args = {flag: True, **kind}
    with pytest.raises(UsageError, match=f"--{flag.replace('_', '-')} is for iterative"):
        build(command_task(), model, **args)
    build(task, model, **args)  # programs do not look at them
    build(command_task(quiet=True), model, **args)


@pytest.mark.parametrize(
    "flags, args, message",
    [
        ({"exact_search": True, "exact_budget": -1}, {}, "--exact-budget must not be negative"),
        ({"exact_search": True}, {"sampling": True}, "--exact-search is for beam search"),
        ({"enumerate": 0.5}, {"diverse_beam_groups": 1}, "--enumerate is for beam search"),
        ({"exact_search": True}, {"match_source_len": True}, "--exact-search is for beam search"),
        ({"enumerate": 1.5}, {}, "--enumerate must be above 0 and at most 1, got 1.5"),
    ],
)
def test_what_exact_search_cannot_do_is_one_line(model, flags, args, message):
    with pytest.raises(UsageError, match=message):
        build(make_task(**flags), model, **args)


def test_exact_search_refuses_a_language_model(model):
    extra = {"lm_model": torch.nn.Identity()}
    with pytest.raises(UsageError, match="--exact-search does not work with a language model"):
        make_task(exact_search=True).build_generator([model], Namespace(), None, extra)


def test_the_output_is_asked_when_decoding(task, model):
    """--eval-bleu builds its generator before the model knows its criterion."""
    generator, transform = build(task, model), model.decoder.output_transform
    assert generator.output().sums_to_one
    transform.settings = OutputSettings("alpha_relu", 1.5, 0.1)
    assert not generator.output().sums_to_one
    transform.settings = OutputSettings()


@pytest.mark.parametrize("filed", [False, True])
@pytest.mark.parametrize("shards", [1, 3])
def test_lines_and_one_summary(model, shards, filed, capsys, tmp_path):
    """Five batches in all; some of three workers get an empty one at the end."""
    for shard in range(shards):
        task = command_task(results_path=str(tmp_path) if filed else None)
        dataset = make_dataset(task, sentences=5)
        iterator = task.get_batch_iterator(
            dataset, max_sentences=1, num_shards=shards, shard_id=shard
        )
        generator = build(task, model, beam=2, max_len_b=5)
        seen = 0
        for sample in iterator.next_epoch_itr(shuffle=False):
            if "net_input" in sample:
                task.inference_step(generator, [model], sample)
                seen += 1
        out = capsys.readouterr().out
        if filed:
            assert out == ""
            out = (tmp_path / "exactness-test.txt").read_text()
        assert out.count("E-") == seen and out.count(f"Exactness of {seen} sentences") == 1


def test_interactive_numbers_its_lines(model, capsys):
    """It reads a few lines at a time, and hands over batches without their numbers, the longest
    sentence of each first."""
    task = command_task()
    generator = build(task, model, beam=2, max_len_b=5)
    seen = []
    for lengths in ([3, 5, 4], [2, 6]):
        tokens = [torch.tensor([5] * n + [task.src_dict.eos()]) for n in lengths]
        dataset = task.build_dataset_for_inference(tokens, torch.tensor(lengths) + 1)
        batches = task.get_batch_iterator(dataset, max_sentences=2).next_epoch_itr(shuffle=False)
        start = len(seen)
        for batch in list(batches):
            task.inference_step(generator, [model], {"net_input": batch["net_input"]})
            seen += [start + number for number in batch["id"].tolist()]
    printed = [int(line[2:].split("\t")[0]) for line in capsys.readouterr().out.splitlines()]
    assert printed == seen and sorted(printed) == list(range(5)) and printed != sorted(printed)


def test_programs_and_validation_print_nothing(model, capsys):
    program, training = make_task(), command_task()
    for task in (program, training):
        generator = build(task, model, beam=2, max_len_b=5)
        task.get_batch_iterator(make_dataset(task), max_sentences=1)
        if task is training:
            task.build_criterion(Namespace(criterion="cross_entropy", _name="cross_entropy"))
        task.inference_step(generator, [model], make_batch(task, sentences=2))
    assert capsys.readouterr().out == ""


def hypothesis(raw, normalized, exhaustive, status="finished"):
    exact = {"raw": raw, "normalized": normalized}
    gap = {"raw": 0.0 if raw else 0.5 if status == "finished" else None, "normalized": None}
    known = {"exact": exact, "exhaustive": exhaustive, "status": status, "gap": gap, "score": 0.0}
    bound = {"raw": -1.5, "normalized": None}
    return {**known, "bound": bound, "proved": raw, "mass": (0.25, 1.0)}


def test_summary():
    report = ExactnessReport()
    line = report.add([hypothesis(True, True, True)])
    assert line == (
        "raw=yes\tnormalized=yes\texhaustive=yes\thypotheses=1\tstatus=finished\tproved=1\t"
        "raw_gap=0.0000\tnormalized_gap=-\traw_bound=-1.5000\tnormalized_bound=-\t"
        "mass=0.2500..1.0000"
    )
    report.add([hypothesis(True, False, True), hypothesis(False, True, True)])
    report.add([hypothesis(False, False, False)])
    report.add([hypothesis(False, False, False, "forced")])
    assert report.summary() == (
        "Exactness of 4 sentences: certified 50.0% (raw score), 25.0% (length-normalized score); "
        "mean gap 0.1667 nats (raw score); 25.0% with a single non-zero hypothesis; "
        "mean number of hypotheses 1.00; forced 1"
    )
