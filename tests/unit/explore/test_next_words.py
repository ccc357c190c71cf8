"""Lists of next words on tables whose supports are known."""

import pytest
import torch
from explore_tables import (
    HOUSES,
    LAUGHTER,
    SENTENCEPIECE,
    THERE,
    all_words_of,
    predictor_of,
    random_words,
    softmax_houses,
)
from table_models import IDENTITY
from tiny_fairseq import make_model, make_task

from experiments.explore import next_words
from experiments.explore.next_words import BEST, FULL, Listing, all_words
from experiments.explore.predictor import NotPossible
from experiments.explore.states import PrefixStates
from experiments.explore.tree import LONGEST


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
    assert found.complete and not found.beginnings
    assert expected == scores(found)
    order = sorted(expected, key=lambda name: -expected[name])
    assert [word.name for word in found.words] == order


def test_word_without_end_is_followed_up_to_the_budget_and_its_beginning_listed():
    predictor = predictor_of(LAUGHTER)
    found = listed(predictor, budget=4)
    assert not found.complete
    assert opened(found) == {"ha" * 5: pytest.approx(0.5**5)}
    assert [word.name for word in found.words] == ["the", *("ha" * n for n in range(2, 6))]
    assert found.mass == pytest.approx(1)
    # Nor does a larger budget follow one word for ever.
    found = listed(predictor, budget=FULL)
    assert opened(found) == {"ha" * LONGEST: pytest.approx(0.5**LONGEST)}
    assert found.beginnings[0].longest and found.mass == pytest.approx(1)


def opened(found) -> dict:
    return {beginning.name: beginning.score for beginning in found.beginnings}


def test_beginnings_hold_what_is_not_listed(monkeypatch):
    monkeypatch.setattr(next_words, "LEAST", 0.2)
    predictor = predictor_of(THERE)
    found = all_words(Listing(predictor._tree(predictor.source("the"), ())), 1, settled=10)
    # "th@@" is open; "t@@" is closed, but "the" and "there" that are spelled with it are listed.
    there = 0.3 * 0.3 + 0.15 * 0.7 * 0.5
    the = 0.5 + 0.3 * 0.5 + 0.15 * 0.2
    assert scores(found) == {"the": the, "there": there, "that": 0.06, "a": 0.05}
    # "them", and the sentences that end after "t" or "the"
    assert opened(found) == {"t": pytest.approx(0.15 * 0.7 * 0.4 + 0.015 + 0.0105)}
    assert (found.complete, found.exact, found.lost) == (False, True, 0)
    assert found.mass == pytest.approx(1)


def test_spellings_that_were_not_looked_for_are_told(monkeypatch):
    monkeypatch.setattr(next_words, "LEAST", 0.2)
    found = listed(predictor_of(THERE), budget=1)
    assert not found.exact and found.mass == pytest.approx(1)
    assert found.by_name["the"].score == pytest.approx(0.65)


def test_sentence_that_ends_within_a_word_is_no_word():
    found = listed(predictor_of(THERE))
    assert found.complete and "t" not in found.by_name
    assert found.lost == pytest.approx(0.15 * 0.1 + 0.15 * 0.7 * 0.1)
    assert found.mass == pytest.approx(1)


@pytest.mark.parametrize("least", [0.0, 0.03, 0.3])
@pytest.mark.parametrize("budget", [0, 3, 20, 1000])
@pytest.mark.parametrize("seed", range(3))
def test_lists_and_what_is_opened_in_them_are_everything(monkeypatch, seed, budget, least):
    """Whatever is followed first, all lists together are the brute-force enumeration."""
    monkeypatch.setattr(next_words, "LEAST", least)
    rows = random_words(seed)
    expected = all_words_of(rows)
    predictor = predictor_of(rows)
    found: dict = {}
    lost = 0.0
    waiting = [(Listing(predictor._tree(predictor.source("a"), ())), 1.0)]
    while waiting:
        listing, mass = waiting.pop()
        view = all_words(listing, budget if mass == 1 else max(budget, 1), settled=10_000)
        assert view.exact and view.mass == pytest.approx(mass, rel=1e-5)
        assert not found.keys() & view.by_name.keys()  # each word is listed once
        found |= {word.name: word.score for word in view.words}
        lost += view.lost
        known = listing.known | {name for name in view.by_name if name}
        for beginning in view.beginnings:
            unlisted = [n for n in expected if n and n not in found]
            assert any(name.startswith(beginning.name) for name in unlisted) or "" in expected
            waiting.append((Listing(listing.tree, beginning, known), beginning.score))
        names = [*opened(view)]
        assert not any(a != b and a.startswith(b) for a in names for b in names)
    assert lost == pytest.approx(expected.pop("", 0.0), abs=1e-7)
    assert found == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize("seed", range(3))
def test_following_all_ends_with_all_words(seed, monkeypatch):
    monkeypatch.setattr(next_words, "AT_ONCE", 7)  # and so from states that are made anew
    rows = random_words(seed)
    expected = all_words_of(rows)
    expected.pop("", None)
    predictor = predictor_of(rows)
    source = predictor.source("a")
    steps = [predictor.follow(source, [], (), budget) for budget in (5, 10, 10_000)]
    assert [more for _, more in steps] == [True, True, False]
    found = predictor.alternatives(source, [], everything=True)
    assert found.complete and found.exact
    assert {word.name: word.score for word in found.words} == pytest.approx(expected, rel=1e-4)


def test_typed_letters_agree_with_a_beginning(monkeypatch):
    monkeypatch.setattr(next_words, "LEAST", 0.9)
    predictor = predictor_of(THERE)
    found = listed(predictor, letters="the", budget=2)
    assert all(name.startswith("the") for name in [*scores(found), *opened(found)])
    expected = {n: s for n, s in all_words_of(THERE).items() if n and n.startswith("the")}
    everything = listed(predictor, letters="the")
    assert everything.complete and scores(everything) == expected
    assert found.mass >= sum(expected.values()) - 1e-6


def test_beginning_that_is_not_in_the_list_is_refused():
    predictor = predictor_of(THERE)
    source = predictor.source("the")
    with pytest.raises(NotPossible, match="no beginning 'x' any more"):
        predictor.alternatives(source, [], (("x", False),))
    with pytest.raises(NotPossible, match="softmax excludes nothing"):
        softmax_houses().alternatives(source, [], (("x", False),))


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
