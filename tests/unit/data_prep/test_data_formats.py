"""Official formats with the oddities that real files have."""

import pytest

from data_prep.formats import segments, transcripts, unescaped
from sparse_fairseq.errors import UsageError


@pytest.mark.parametrize(
    "line, text",
    [
        ("R&amp;D", "R&D"),
        ("&lt;b&gt; &quot;x&quot; &apos;y&apos;", "<b> \"x\" 'y'"),
        ("&amp;lt;", "&lt;"),  # an entity is read once
        ("&#39; &#x2019; &#xA0;", "' \u2019 \u00a0"),
        ("&#0099999; &#xD800; &#x110000;", "\U0001869f &#xD800; &#x110000;"),
        ("AT&T &nbsp; &", "AT&T &nbsp; &"),
    ],
)
def test_entities(line, text):
    assert unescaped(line.encode()) == text.encode()


def test_a_segment_may_go_over_lines_and_two_may_share_one(tmp_path):
    path = tmp_path / "x.sgm"
    path.write_bytes(
        b'<doc><seg id="1"> one\ntwo </seg>\r\n<SEG id="2">R&amp;D</SEG> <seg>3</seg\n></doc>'
    )
    assert list(segments(path)) == [b"one two", b"R&D", b"3"]


def test_a_segment_that_does_not_end_is_an_error(tmp_path):
    path = tmp_path / "x.sgm"
    path.write_bytes(b"<seg>one\n<seg>two</seg>\n")
    with pytest.raises(UsageError, match="x.sgm has 2 <seg> but 1 that end"):
        list(segments(path))


def test_transcripts_are_unescaped_and_a_mark_makes_no_sentence_of_a_tag(tmp_path):
    path = tmp_path / "train.tags"
    path.write_bytes("\ufeff<url>x</url>\n  <title>T</title>\n R&amp;D \n".encode())
    assert list(transcripts(path)) == [b" R&D "]
