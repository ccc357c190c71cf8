"""The API as a browser and as a stranger see it; the models are tables."""

from concurrent.futures import ThreadPoolExecutor

import pytest
from explore_server import serving
from explore_tables import all_words_of, houses_catalogue, random_words

from experiments.explore import next_words, predictor, server
from experiments.explore.catalogue import Entry

ASK = {"run": 0, "source": "the house"}
NAMES = ("translate", "alternatives", "follow", "suggest")


@pytest.fixture(scope="module")
def site():
    with serving(houses_catalogue()) as site:
        yield site


def test_runs_are_listed_and_a_broken_one_says_why(site):
    runs = site.ask("/api/runs").value["runs"]
    assert [run["label"] for run in runs] == ["1.5-entmax", "softmax", "α-ReLU"]
    assert [run["sparse"] for run in runs] == [True, False, False]
    assert runs[2]["problem"] == "houses/relu15/seed1/checkpoints/checkpoint_best.pt is missing"
    assert "is missing" in site.ask("/api/translate", {**ASK, "run": 2}).error


def test_api_answers(site):
    assert site.ask("/api/translate", ASK).value["text"] == "the house"
    words = site.ask("/api/alternatives", {**ASK, "words": ["the"]}).value["items"]
    assert [word["name"] for word in words] == ["house", "green", "houses"]
    found = site.ask("/api/suggest", {**ASK, "words": ["the"], "typed": " g"}).value
    assert [word["text"] for word in found["ahead"]] == ["green", "house"]


def test_list_of_the_api_is_complete_at_any_length(monkeypatch):
    """Opening beginnings until none is left, and following all, both give every word."""
    monkeypatch.setattr(predictor, "FULL", 2)
    monkeypatch.setattr(next_words, "LEAST", 0.05)
    rows = random_words(1)
    expected = all_words_of(rows)
    lost = expected.pop("", 0.0)
    ask = {"run": 0, "source": "a"}
    with serving(houses_catalogue(rows)) as site:
        found: dict = {}
        waiting: list[list] = [[]]
        while waiting:
            opened = waiting.pop()
            reply = site.ask("/api/alternatives", {**ask, "opened": opened}).value
            masses = sum(item["score"] for item in reply["items"])
            if not opened:
                assert reply["beginnings"] > 0 and not reply["complete"]
                assert masses + reply["lost_share"] == pytest.approx(1)
            for item in reply["items"]:
                if item["beginning"]:
                    waiting.append([*opened, {"name": item["name"], "all": False}])
                else:
                    assert item["name"] not in found
                    found[item["name"]] = item["score"]
        assert found == pytest.approx(expected, rel=1e-4)
        assert sum(found.values()) + lost == pytest.approx(1)
        progress, budget = {"more": True}, 0
        while progress["more"]:
            budget += 10
            progress = site.ask("/api/follow", {**ask, "budget": budget}).value
        assert (progress["open"], progress["open_score"]) == (0, 0)
        reply = site.ask("/api/alternatives", {**ask, "all": True}).value
    assert reply["complete"] and not reply["more"]
    assert {i["name"]: i["score"] for i in reply["items"]} == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"opened": "th"}, "'opened' must be a list"),
        ({"opened": ["th"]}, "'opened' must be a list"),
        ({"opened": [{}]}, "'name' must be a text"),
        ({"opened": [{"name": "th", "all": 1}]}, "'all' must be true or false"),
        ({"opened": [{"name": "th"}] * 101}, "101 beginnings"),
        ({"opened": [{"name": "zz"}]}, "no beginning 'zz' any more"),
        ({"skip": -1}, "'skip' must be a number"),
        ({"skip": True}, "'skip' must be a number"),
        ({"run": 1, "opened": [{"name": "th"}]}, "softmax excludes nothing"),
    ],
)
def test_bad_beginnings_get_one_line(site, change, message):
    reply = site.ask("/api/alternatives", {**ASK, **change})
    assert reply.status == 422
    assert message in reply.error


def test_softmax_is_not_followed_to_an_end(site):
    reply = site.ask("/api/follow", {**ASK, "run": 1, "budget": 5})
    assert reply.status == 422 and "has no end" in reply.error


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    ("change", "status", "message"),
    [
        ({"source": ""}, 422, "empty"),
        ({"source": "x" * 10_000}, 422, "10,000 characters"),
        ({"source": None}, 422, "'source' must be a text"),
        ({"source": "\ud83d"}, 422, "half a character"),
        ({"run": 7}, 404, "no run 7"),
        ({"run": "../../etc/passwd"}, 404, "no run"),
        ({"run": True}, 404, "no run True"),
        ({"words": "the"}, 422, "'words' must be a list"),
        ({"words": ["a b"]}, 422, "spaces"),
        ({"words": ["the"] * 301}, 422, "301 words"),
        ({"words": ["the"] * 60}, 422, "too long"),
    ],
)
def test_bad_requests_get_one_line(site, name, change, status, message):
    reply = site.ask(f"/api/{name}", {**ASK, **change})
    assert reply.status == status
    assert message in reply.error


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"", 400),
        (b"{", 400),
        (b"[1]", 400),
        (b"[" * 60_000, 400),
        (b"\xff\xfe", 400),
        (b'"' + b"x" * 70_000 + b'"', 413),
    ],
)
def test_what_is_no_json_gets_one_line(site, body, status):
    reply = site.ask("/api/translate", body)
    assert reply.status == status and reply.error


@pytest.mark.parametrize(
    "text",
    [
        "\u202eesuoh\u202c the",
        "مرحبا بالعالم",
        "👩‍👩‍👧 the 🏠",
        "<script>alert(1)</script>",
        "a\u0000b",
    ],
)
def test_any_text_is_translated(site, text):
    reply = site.ask("/api/translate", {**ASK, "source": text, "typed": text})
    assert reply.status == 200
    assert all(word["unknown"] for word in reply.value["source"] if word["text"] != "the")


@pytest.mark.parametrize(
    "path",
    ["/etc/passwd", "/../server.py", "/page.css/..%2fserver.py", "/static/page.js", "//", "/api"],
)
def test_nothing_but_the_page_is_served(site, path):
    reply = site.ask(path)
    assert reply.status == 404 and reply.error


def test_page_asks_for_nothing_from_elsewhere(site):
    for path in ("/", "/page.css", "/page.js"):
        text = site.ask(path).content.decode().replace("http://www.w3.org/2000/svg", "")
        assert "http://" not in text and "https://" not in text
    policy = site.ask("/").headers["content-security-policy"]
    assert "default-src 'none'" in policy and "unsafe" not in policy


def test_other_methods_are_refused(site):
    assert site.ask("/api/translate").status == 405
    assert site.ask("/", b"", method="POST").status == 405


@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "evil.example"},
        {"Host": "127.0.0.1"},
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
    ],
)
def test_other_hosts_and_sites_are_refused(site, headers):
    for path, body in (("/", None), ("/api/runs", None), ("/api/translate", ASK)):
        reply = site.ask(path, body, headers=headers)
        assert reply.status == 403 and reply.error
        assert reply.headers["x-content-type-options"] == "nosniff"


def test_own_page_may_ask(site):
    for host in (f"127.0.0.1:{site.port}", f"localhost:{site.port}"):
        headers = {"Host": host, "Origin": f"http://{host}", "Sec-Fetch-Site": "same-origin"}
        assert site.ask("/api/translate", ASK, headers=headers).status == 200


def test_forms_of_other_sites_cannot_ask(site):
    """A form can send text/plain without the browser asking first."""
    reply = site.ask("/api/translate", ASK, headers={"Content-Type": "text/plain"})
    assert reply.status == 415 and reply.error


def test_eight_clients_at_once_do_not_disturb_each_other(site):
    asked = [
        ("/api/translate", {**ASK, "run": run, "source": source, "words": words})
        for run in (0, 1)
        for source in ("the house", "green house")
        for words in ([], ["the", "green"])
    ]
    alone = [site.ask(*request).value for request in asked]
    with ThreadPoolExecutor(8) as pool:
        together = list(pool.map(lambda request: site.ask(*request).value, 3 * asked))
    assert together == 3 * alone


def test_rate_is_limited(monkeypatch):
    monkeypatch.setattr(server, "AT_ONCE", 3)
    monkeypatch.setattr(server, "PER_SECOND", 0.001)
    with serving(houses_catalogue()) as site:
        replies = [site.ask("/api/translate", ASK) for _ in range(4)]
    assert [reply.status for reply in replies] == [200, 200, 200, 429]
    assert replies[-1].error


def test_bucket_fills_again():
    now = [0.0]
    bucket = server.Bucket(per_second=2, at_once=2, clock=lambda: now[0])
    assert [bucket.take() for _ in range(3)] == [True, True, False]
    now[0] = 0.5
    assert [bucket.take(), bucket.take()] == [True, False]


def test_failure_inside_is_one_line_of_json():
    class Broken:
        dense = sums_to_one = True

        def source(self, text):
            raise RuntimeError("weights\nare NaN")

    with serving([Entry("a/b/seed1", "b", predictor=Broken())]) as site:
        reply = site.ask("/api/suggest", ASK)
    assert reply.status == 500
    assert reply.error == "this went wrong: RuntimeError: weights are NaN"
