"""The annotation page in a real browser: filled in, reloaded, exported, read back."""

from experiments.analysis import human_eval

CANDIDATES = ["reference", "softmax", "relu15"]
SCRIPT = "<script>document.title = 'hacked'</script><img src=x onerror=alert(1)>"


def write_pages(folder):
    sheets = human_eval.draw_samples(12, CANDIDATES, size=4, shared=2, seed=1)
    key = {
        "format": "human_eval key",
        "dataset": "toy",
        "split": "test",
        "seed": 1,
        "runs": {"softmax": "a", "relu15": "b"},
        "sheets": {str(annotator): sheet for annotator, sheet in sheets.items()},
    }
    key["study"] = human_eval.study_name(key)
    sources = [f"Satz {i} {SCRIPT}" for i in range(12)]
    texts = {name: [f"{name[:3]} sentence {i} {SCRIPT}" for i in range(12)] for name in CANDIDATES}
    texts["softmax"][key["sheets"]["1"][0]["sentence"]] = ""
    paths = {}
    for annotator, page in human_eval.pages_of(key, sources, texts):
        paths[annotator] = folder / f"annotator{annotator}.html"
        paths[annotator].write_text(page, encoding="utf-8")
    return paths, key


def mark(page, letter, text):
    page.run(f"document.querySelector('input[name={letter}][value=\"{text}\"]').click()")


def test_marks_survive_a_reload_and_come_back(page, tmp_path):
    paths, key = write_pages(tmp_path)
    wanted = {"reference": "4", "softmax": "3-", "relu15": "3+"}
    page.open(paths["1"])
    for number, item in enumerate(key["sheets"]["1"]):
        for letter, name in zip("ABC", item["candidates"], strict=True):
            if (number, name) != (3, "softmax"):
                mark(page, letter, wanted[name])
        if number == 1:
            page.reload()
            page.wait(
                "return document.querySelector('#place').textContent.startsWith('Sentence 2')"
            )
            assert (
                page.run("return document.querySelector('#count').textContent") == "6 of 12 marks"
            )
            checked = "return [...document.querySelectorAll('input:checked')].map(i => i.value)"
            assert page.run(checked) == [wanted[name] for name in item["candidates"]]
        if number < 3:
            page.click("#next")
    page.click("#export")
    saved = page.downloaded("human_eval_annotator1*.json")
    result = human_eval.evaluate([saved], key)
    assert {name: row["mean"] for name, row in result["systems"].items()} == {
        "reference": 4,
        "softmax": 3,
        "relu15": 3,
    }
    assert result["systems"]["softmax"]["n"] == 3 and result["systems"]["relu15"]["n"] == 4
    assert result["problems"] == [
        f"{saved}: incomplete, 1 translations without a usable mark",
        "no usable export of annotator 2",
    ]
    assert page.console() == []


def test_a_mark_can_be_taken_back_and_found_again(page, tmp_path):
    paths, _ = write_pages(tmp_path)
    page.open(paths["2"])
    for _ in range(3):
        for letter in "ABC":
            mark(page, letter, "2+")
        page.click("#next")
    page.click("#previous")
    mark(page, "B", "")
    assert page.run("return document.querySelector('#count').textContent") == "8 of 12 marks"
    page.click("#next")
    page.click("#open")
    assert page.run("return document.querySelector('#place').textContent") == "Sentence 3 of 4"
    page.run("localStorage.clear()")


def test_keyboard_alone_gives_marks(page, tmp_path):
    paths, _ = write_pages(tmp_path)
    page.open(paths["2"])
    page.type("input[name=A][value='2']", " ")
    page.type("input[name=A][value='2']", "\ue014")  # arrow right
    assert page.run("return document.querySelector('input[name=A]:checked').value") == "2+"
    page.run("localStorage.clear()")


def test_text_stays_text(page, tmp_path):
    paths, key = write_pages(tmp_path)
    page.open(paths["1"])
    page.run("localStorage.clear()")
    page.reload()
    assert page.run("return document.title") == "Judging translations"
    assert page.run("return document.querySelectorAll('main img, main script').length") == 0
    sentence = key["sheets"]["1"][0]["sentence"]
    shown = page.run("return document.querySelector('.source').textContent")
    assert shown == f"Satz {sentence} {SCRIPT}"
    assert "empty" in page.run("return document.querySelector('.none').textContent")
    assert page.console() == []


def test_it_fits_a_phone(page, tmp_path):
    paths, _ = write_pages(tmp_path)
    page.size(360, 740, phone=True)
    page.open(paths["1"])
    assert page.run("return document.documentElement.scrollWidth") <= 360


def test_no_storage_is_said(page, tmp_path):
    paths, _ = write_pages(tmp_path)
    page.open(paths["1"])
    page.run("Storage.prototype.setItem = () => { throw new Error('full'); }")
    mark(page, "A", "1-")
    warning = page.run("return document.querySelector('#warning').textContent")
    assert "press Export before you close the page" in warning
