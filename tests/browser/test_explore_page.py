"""The page of predictive translation in a real browser, on models that are tables."""

from contextlib import contextmanager

import pytest
from explore_server import serving
from explore_tables import HOUSES, LAUGHTER, THERE, houses_catalogue, softmax_houses

from experiments.explore import next_words, predictor
from experiments.explore.catalogue import Entry

ENTER, TAB, ESCAPE, RIGHT, DOWN = "\ue007", "\ue004", "\ue00c", "\ue014", "\ue015"
# After "green" there is no choice for two words.
ROWS = {**HOUSES, "green": {"old": 1.0}, "old": {"house": 1.0}}
SPARSE = "#cards article:nth-child(1)"


@pytest.fixture(scope="module")
def site():
    with serving(houses_catalogue(ROWS)) as site:
        yield site


@contextmanager
def opened(page, site):
    """The page, loaded; at the end nothing must have gone to the console."""
    page.open(site.address)
    page.wait("return document.querySelectorAll('#examples button').length === 2")
    page.console()
    yield page
    assert page.console() == []


@pytest.fixture
def window(page, site):
    with opened(page, site) as window:
        yield window


def texts(window, css: str) -> list[str]:
    return window.run(
        "return [...document.querySelectorAll(arguments[0])].map((e) => e.textContent)", css
    )


def wait_for_list(window) -> None:
    """Until the panel of a word has more than the sign that its list is on the way."""
    window.wait("return (document.querySelector('.panel p')?.textContent ?? '…') !== '…'")


def press(window, keys: str) -> None:
    """Where the focus is."""
    window.type(":focus", keys)


def translate(window, source: str = "the house") -> None:
    window.type("#source", source + ENTER)
    window.wait("return document.querySelectorAll('.target-words').length === 2")


def words(window) -> list[str]:
    return texts(window, f"{SPARSE} .word b")


def test_translation_shows_what_was_possible(window):
    translate(window)
    assert words(window) == ["the", "house", "■"]
    assert texts(window, f"{SPARSE} .word small") == [
        "0.70 · 1 of 3",
        "0.65 · 1 of 3",
        "0.80 · 1 of 2",
    ]
    assert texts(window, "#cards article:nth-child(2) .word b")[:1] == ["the"]
    assert texts(window, ".broken") == [
        "α-ReLU cannot be used: houses/relu15/seed1/checkpoints/checkpoint_best.pt is missing"
    ]


def test_click_replace_and_translate_anew(window):
    translate(window)
    window.click(f"{SPARSE} .word:nth-child(2)")
    wait_for_list(window)
    assert texts(window, ".panel p")[0].startswith("These 3 and no other.")
    assert texts(window, ".panel li bdi") == ["house", "green", "houses"]
    window.click(".panel li:nth-child(2)")
    window.wait("return document.querySelector('.run')")
    assert words(window) == ["the", "green", "old", "house", "■"]
    # Two words without a choice share a border.
    assert texts(window, f"{SPARSE} .run .word b") == ["old", "house"]
    assert texts(window, f"{SPARSE} .run .word small") == ["only", "only"]
    # Two translations begin so, and the search has seen both.
    assert texts(window, f"{SPARSE} .badge") == ["proved best after your words"]


@pytest.fixture(scope="module")
def babble():
    """Words of many pieces; laughter has no end."""
    rows = {**THERE, "a": {"ha@@": 1.0}, **{k: LAUGHTER[k] for k in ("ha@@", "ha")}}
    with (
        pytest.MonkeyPatch.context() as patch,
        serving(houses_catalogue(rows)) as site,
    ):
        patch.setattr(predictor, "FULL", 1)
        patch.setattr(predictor, "QUICK", 1)
        patch.setattr(next_words, "LEAST", 0.2)
        yield site


@pytest.fixture
def talk(page, babble):
    with opened(page, babble) as window:
        yield window


def open_list(window, place: int) -> None:
    window.click(f"{SPARSE} .target-words > :nth-child({place})")
    window.wait("return document.querySelector('.panel li')")


def test_beginning_is_opened_and_gone_back_from_by_keyboard(talk):
    translate(talk)
    open_list(talk, 1)
    told = texts(talk, ".panel p")[0]
    assert told.startswith("These 4 words, 1 beginning of longer words, and no other.")
    assert "The beginning holds 6.7% of all scores" in told
    assert texts(talk, ".panel li bdi") == ["the", "there", "t…", "that", "a"]
    press(talk, DOWN + DOWN + ENTER)
    talk.wait("return document.querySelector('.panel li bdi').textContent === 'them'")
    told = texts(talk, ".panel p")[0]
    assert told.startswith("Other words that begin with “t” have 0.07 in all: this one and no")
    assert "the sentence would end within a word" in told
    press(talk, ESCAPE)
    talk.wait("return document.querySelectorAll('.panel li').length === 5")
    assert texts(talk, ":focus bdi") == ["t…"]
    press(talk, ENTER)
    talk.wait("return document.querySelector('.panel li bdi').textContent === 'them'")
    press(talk, ENTER)
    talk.wait(f"return document.querySelector('{SPARSE} .word b').textContent === 'them'")


def test_all_is_followed_to_the_end(talk):
    translate(talk)
    open_list(talk, 1)
    talk.run("document.querySelector('.follow button:last-child').click()")
    talk.wait("return document.querySelectorAll('.panel li').length === 5")
    talk.wait("return document.querySelector('.panel p').textContent.startsWith('These 5 and no')")
    assert texts(talk, ".panel li bdi") == ["the", "there", "that", "a", "them"]
    assert not talk.find(".follow button").is_displayed()  # nothing is left


def test_word_without_end_stays_a_beginning_and_says_so(talk):
    translate(talk, "a")
    open_list(talk, 1)
    talk.type(".panel input", "a" + ENTER)
    talk.wait(f"return document.querySelector('{SPARSE} .word.given b')?.textContent === 'a'")
    open_list(talk, 2)
    talk.run("document.querySelector('.follow button:last-child').click()")
    talk.wait("return document.querySelectorAll('.panel li').length === 16")
    assert texts(talk, ".panel p")[0].startswith("These 15 words, 1 beginning of longer words, and")
    assert texts(talk, ".panel li:last-child bdi") == ["ha" * 16 + "…"]
    assert "more pieces than are followed" in texts(talk, ".panel p")[-1]


def test_following_can_be_stopped(talk):
    translate(talk)
    open_list(talk, 1)
    # An answer that never comes to an end.
    talk.run(
        """const real = window.fetch;
        window.fetch = async (path, options) => {
          const answer = await real(path, options);
          if (path !== "/api/follow") return answer;
          const value = await answer.json();
          return { ok: true, status: 200, json: async () => ({ ...value, open: 7, more: true }) };
        };
        document.querySelector(".follow button:last-child").click();"""
    )
    talk.wait("return document.querySelector('.follow')?.textContent.includes('7 open')")
    assert texts(talk, ":focus") == ["Stop"]
    press(talk, ESCAPE)
    talk.wait("return document.querySelector('.panel p').textContent.startsWith('These 5 and no')")


def test_beginning_completes_letters_while_typing(talk):
    translate(talk, "a")
    talk.type("#draft", "a h")
    talk.wait("return document.querySelector('#suggestions bdi')?.textContent.startsWith('ha')")
    labels = texts(talk, "#suggestions bdi")
    begun = next(label for label in labels if label.endswith("…"))
    assert all(label.startswith("h") for label in labels)  # the letters that were typed
    press(talk, DOWN * labels.index(begun) + TAB)
    talk.wait(f"return document.querySelector('#draft').value === 'a {begun[:-1]}'")


def test_softmax_says_how_many_others_there_are(window):
    translate(window)
    window.click("#cards article:nth-child(2) .word:nth-child(2)")
    wait_for_list(window)
    assert "softmax excludes nothing" in texts(window, ".panel p")[0]


def test_own_words_may_be_unknown_or_impossible(window):
    translate(window)
    window.click(f"{SPARSE} .word:nth-child(1)")
    window.wait("return document.querySelector('.panel input')")
    window.type(".panel input", "zebra ." + ENTER)
    window.wait("return document.querySelectorAll('.notes li').length === 2")
    assert texts(window, f"{SPARSE} .notes li") == [
        "“zebra” is outside the model’s vocabulary; going on regardless.",
        "“.”: the model gives this word probability 0; going on regardless.",
    ]
    assert words(window)[:2] == ["zebra", "."]


def test_keyboard_alone_chooses_another_word(window):
    press(window, "the house" + ENTER)  # the page begins there
    window.wait("return document.querySelectorAll('.target-words').length === 2")
    for _ in range(20):
        if window.run("return document.activeElement.classList.contains('word')"):
            break
        press(window, TAB)
    press(window, RIGHT + DOWN)
    window.wait("return document.activeElement.getAttribute('role') === 'option'")
    assert texts(window, ":focus bdi") == ["house"]
    press(window, DOWN + ENTER)
    window.wait("return document.querySelector('.run')")
    assert words(window) == ["the", "green", "old", "house", "■"]
    assert texts(window, ":focus b") == ["green"]


def test_keyboard_alone_completes_a_translation(window):
    translate(window)
    for _ in range(60):
        if window.run("return document.activeElement.id === 'draft'"):
            break
        press(window, TAB)
    window.wait("return document.querySelectorAll('#suggestions li').length === 3")
    press(window, "the gr")
    window.wait("return document.querySelector('#ghost span')?.textContent === 'een old house'")
    assert texts(window, "#suggestions bdi") == ["green"]
    press(window, TAB)
    window.wait("return document.querySelector('#draft').value === 'the green old house '")
    window.wait("return document.querySelectorAll('#suggestions li').length === 2")
    # The space gives way to a full stop, and then nothing can follow.
    press(window, ". ")
    window.wait("return document.querySelector('#summary').textContent.startsWith('Complete')")
    assert window.run("return document.querySelector('#draft').value") == "the green old house. "
    press(window, ESCAPE + TAB)
    assert window.run("return document.activeElement.id") != "draft"


def test_one_word_at_a_time_and_down_the_list(window):
    translate(window)
    window.type("#draft", "the g")
    window.wait("return document.querySelector('#ghost span')?.textContent === 'reen old house'")
    press(window, "\ue009" + RIGHT + "\ue000")  # Ctrl
    window.wait("return document.querySelector('#draft').value === 'the green '")
    window.run("document.querySelector('#draft').value = ''")
    window.type("#draft", "t")
    window.wait("return document.querySelector('#suggestions')?.textContent.startsWith('the')")
    press(window, TAB)
    window.wait("return document.querySelectorAll('#suggestions li').length === 3")
    press(window, DOWN + DOWN)
    selected = "#suggestions [aria-selected=true] bdi"
    assert texts(window, selected) == ["houses"]
    active = window.run(
        "return document.getElementById("
        "document.querySelector('#draft').getAttribute('aria-activedescendant')).textContent"
    )
    assert active.startswith("houses")
    press(window, TAB)
    window.wait("return document.querySelector('#draft').value === 'the houses '")


def test_attention_is_drawn(window):
    translate(window, "the green house")
    window.run("document.querySelector(arguments[0]).focus()", f"{SPARSE} .word:nth-child(2)")
    assert window.run(f"return document.querySelectorAll('{SPARSE} svg path').length") == 1
    assert texts(window, f"{SPARSE} .source-words .seen") == ["green"]


def test_examples_are_for_who_has_not_typed_anything(window):
    assert window.find("#examples").is_displayed()
    translate(window)
    assert not window.find("#examples").is_displayed()
    window.run("document.querySelector('#source').value = ''")
    window.type("#source", " ")
    assert window.find("#examples").is_displayed()


def test_search_goes_on_until_the_best_is_proved(page):
    with serving([Entry("a/softmax/seed1", "softmax", predictor=softmax_houses(beam_size=1))]) as s:
        page.open(s.address)
        page.wait("return document.querySelector('#systems input')")
        page.type("#source", "the house" + ENTER)
        page.wait("return document.querySelector('.target-words')")
        assert texts(page, ".badge")[0].startswith("at most ")
        page.click(".card header button")
        page.wait("return document.querySelector('.badge').textContent === 'proved best'")
        assert not page.find(".card header button").is_displayed()


def test_text_of_a_corpus_is_text(window):
    assert texts(window, "#examples button")[1] == "the <b>green</b> house"
    window.click("#examples button:nth-child(2)")
    window.wait("return document.querySelectorAll('.target-words').length === 2")
    assert "<b>green</b>" in texts(window, f"{SPARSE} .source-words")[0]
    assert window.run("return document.querySelectorAll('.source-words b').length") == 0


@pytest.mark.parametrize("width", [320, 390, 768])
def test_narrow_screens_need_no_scrolling_to_the_side(window, width):
    window.size(width, 844, phone=True)
    translate(window, "the house " * 10 + "Donaudampfschifffahrtselektrizitäten" * 3)
    window.click(f"{SPARSE} .word")
    wait_for_list(window)
    assert window.run("return document.documentElement.scrollWidth <= innerWidth")


def test_dark_mode_is_dark(window):
    window.media(scheme="dark")
    background = window.run("return getComputedStyle(document.body).backgroundColor")
    assert max(int(part) for part in background[4:-1].split(",")) < 40


def test_everything_that_can_be_used_has_a_name(window):
    translate(window)
    window.click(f"{SPARSE} .word")
    wait_for_list(window)
    nameless = window.run(
        """return [...document.querySelectorAll("button, input, textarea, select, [role=listbox]")]
        .filter((e) => !(e.textContent.trim() || e.getAttribute("aria-label") ||
          e.labels?.length || e.getAttribute("aria-labelledby"))).map((e) => e.outerHTML)"""
    )
    assert nameless == []
