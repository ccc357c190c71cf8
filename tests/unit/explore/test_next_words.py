"""Lists of next words on tables whose supports are known."""

import pytest
import torch
from explore_tables import HOUSES, LAUGHTER, SENTENCEPIECE, predictor_of, softmax_houses
from table_models import IDENTITY
from tiny_fairseq import make_model, make_task

from experiments.explore.next_words import BEST, FULL
from experiments.explore.states import PrefixStates


def listed(predictor, prefix: str = "", letters: str = "", **options):
    source = predictor.source("the house")
    given = predictor.given(source, prefix.split())
    return predictor.next_words(source, given, letters, **options)


def scores(found) -> dict:
    return {word.name: pytest.approx(word.score) for word in found.words}


@pytest.mark.parametrize(
    ("prefix", "letters", "expected"),
    [
        ("", "", {"the": 0.7, "house": 0.18, "houses": 0.12}),
        # two spellings of one word count together
        ("the", "", {"house": 0.5 + 0.25 * 0.6, "green": 0.25, "houses": 0.1}),
        ("the", "h", {"house": 0.65, "houses": 0.1}),
        ("the", "HOU", {"house": 0.65, "houses": 0.1}),
        ("the", "houses", {"houses": 0.1}),
        ("the", "x", {}),
        ("the green", "", {"house": 1.0}),
        ("the green house", "", {None: 0.8, ".": 0.2}),
        ("houses", "", {None: 1.0}),
    ],
)
def test_list_is_complete(prefix, letters, expected):
    found = listed(predictor_of(HOUSES), prefix, letters)
    assert found.complete and found.others == 0
    assert expected == scores(found)
    order = sorted(expected, key=lambda name: -expected[name])
    assert [word.name for word in found.words] == order


def test_word_without_end_is_followed_up_to_the_budget_and_said_to_be_cut():
    predictor = predictor_of(LAUGHTER)
    found = listed(predictor, budget=4)
    assert not found.complete
    assert (found.others, found.others_score) == (1, pytest.approx(0.5**5))
    assert [word.name for word in found.words] == ["the", *("ha" * n for n in range(2, 6))]
    assert sum(word.score for word in found.words) + found.others_score == pytest.approx(1)
    # Nor does a larger budget follow one word for ever.
    assert not listed(predictor, budget=FULL).complete


def test_pieces_that_end_with_the_next_one():
    predictor = predictor_of(SENTENCEPIECE, segmentation="sentencepiece")
    # "the" ends with probability 0.75; "these" goes on from it, and may end or not
    expected = {"the": 0.75, "these": 0.25 * 0.5, "theses": 0.25 * 0.5}
    assert expected == scores(listed(predictor))
    # Given that "the" has ended: 0.5 of 0.75 for a word, the rest for the end.
    after = {"hou": 2 / 3 * 0.2, "house": 2 / 3 * 0.4, "houses": 2 / 3 * 0.4, None: 1 / 3}
    assert after == scores(listed(predictor, "the"))
    assert scores(listed(predictor, "the", "houses")) == {"houses": 2 / 3 * 0.4}


def test_softmax_excludes_nothing_and_shows_the_best():
    predictor = softmax_houses()
    found = listed(predictor, "the")
    assert not found.complete
    assert found.words[0].name == "house"
    assert len(found.words) == BEST
    # <s>, <pad> … : padding and made-up words are no words
    pieces = len(predictor.target_dictionary) - 2
    first = {word.path[0] for word in found.words}
    assert found.others == pieces - len(first)
    shown = sum(word.score for word in found.words)
    assert found.others_score == pytest.approx(found.total - shown, abs=1e-6)


def test_softmax_with_letters_searches_the_whole_vocabulary():
    found = listed(softmax_houses(), "green", "th")
    assert found.words[0].name == "the"
    assert all(word.name.startswith("th") for word in found.words)


def test_scores_of_alpha_relu_need_not_sum_to_one():
    rows = {**HOUSES, "the": {"house": 0.9, "green": 0.6}}
    found = listed(predictor_of(rows, IDENTITY), "the")
    assert found.complete and found.total == pytest.approx(1.5)


def test_each_piece_is_decoded_once():
    predictor = predictor_of(HOUSES)
    listed(predictor, "the green")
    steps = predictor.states.steps
    listed(predictor, "the green")
    assert predictor.states.steps == steps
    listed(predictor, "the green house")
    assert predictor.states.steps == steps + 1


@pytest.mark.parametrize("arch", ["transformer", "lstm", "lightconv"])
def test_remembered_states_say_what_a_whole_pass_says(arch):
    task = make_task()
    model = make_model(task, arch, from_checkpoint=True).eval()
    states = PrefixStates(model, task.tgt_dict.eos())
    source = (5, 6, 7, task.src_dict.eos())
    prefixes = [(5, 6, 7), (5, 6), (5, 6, 8, 9), (), (7, 7)]
    for prefix in prefixes:  # forth and back, and off into branches
        rows = states.after(source, prefix)
        sample = states.sample(source)["net_input"]
        told = torch.tensor([[task.tgt_dict.eos(), *prefix]])
        whole = model.get_normalized_probs(model(**sample, prev_output_tokens=told), False)
        torch.testing.assert_close(rows.scores[0], whole[0, -1].detach(), rtol=1e-4, atol=1e-6)
    # several rows at once, from one state that stays as it was
    parent = states.after(source, (5, 6))
    both = states.onward(parent, [0, 0], [(5, 6, 8), (5, 6, 7)])
    torch.testing.assert_close(both.scores[1], states.after(source, (5, 6, 7)).scores[0])
    torch.testing.assert_close(both.scores[0], states.after(source, (5, 6, 8)).scores[0])


def test_old_states_are_forgotten():
    predictor = predictor_of(LAUGHTER)
    source = predictor.source("the")
    for length in range(28):
        predictor.states.after(source.tokens, (predictor.pieces.index("the"),) * length)
    kept = predictor.states._prefixes
    kept.size = 5
    predictor.states.after(source.tokens, ())
    assert len(kept) == 5
