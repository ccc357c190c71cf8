"""What fairseq's rule for the end of a search costs each system, beside `--end-search ahead`."""

from ..comparison import measured_rows
from ..gather import Material
from ..parts import Section, Table
from ..section import SectionMaker

RULES = {"full": "fairseq's rule", "ahead": "ahead"}
SENTENCES = {"BLEU": ("bleu", 1), "chrF": ("chrf", 1), "Length, %": ("length", 1)}
WORDS = {"Word accuracy, %": ("word_accuracy", 2), "Edit distance": ("edit_distance", 3)}


def fill(material: Material, section: Section) -> None:
    if not material.first_results("end_search"):
        return
    section.reading = [
        "fairseq ends a search when as many hypotheses as the beam are complete, however bad they "
        "are. With “ahead” (--end-search ahead) the search goes on while an unfinished hypothesis "
        "is better than the complete ones. Softmax always has bad hypotheses to complete; a sparse "
        "model may have none, and searches on under both rules. Where fairseq's rule costs one "
        "system more than another, a comparison under it is not fair."
    ]
    if not material.inflects:
        section.reading.append(
            "BLEU and chrF are of the words as they were divided for training, and the length is "
            "in % of the references': compare the two rules, not with other tables."
        )
    found = {
        f"{title}, {name}": (_of_seeds(material, rule, key), digits)
        for title, (key, digits) in (WORDS if material.inflects else SENTENCES).items()
        for rule, name in RULES.items()
    }
    found["Other output, %"] = (material.of_seeds("end_search", lambda r: r["differ"]), 1)
    rows = measured_rows(material, "end_search", found)
    section.blocks = [Table("end_search", "Two rules, test set", ["System", *found], rows)]


def _of_seeds(material: Material, rule: str, key: str):
    return material.of_seeds("end_search", lambda result: result[rule][key])


SECTION = SectionMaker(54, "When a search ends", fill)
