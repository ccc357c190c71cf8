"""Hours and kWh of training (SE Table 5)."""

from ..comparison import comparison, finish, mean_of, triple
from ..gather import Material
from ..parts import (
    Cell,
    Section,
    Table,
    number,
    text,
)
from ..section import SectionMaker


def fill(material: Material, section: Section) -> None:
    hours = material.of_seeds("energy", lambda r: r["hours"])
    if not hours:
        return
    results = material.first_results("energy")
    kwh = material.of_seeds("energy", lambda r: r["kwh"])
    sources = {r["source"] for r in results.values() if r.get("source")}

    def why(system: str) -> str:
        return material.why("energy", system)

    def used(system: str) -> Cell:
        reason = (results.get(system) or {}).get("why")
        reason = reason and reason.replace("not measured:", "cannot be measured here:")
        return number(*mean_of(kwh, system, 3), reason or why(system))

    digits = 2 if max(value[0] for value in hours.values()) >= 1 else 3
    section.reading = [
        "Hours of training with validation. Energy is measured while training runs or not at all; "
        "it is never estimated from a nominal power, as the paper does."
    ]
    table = comparison(
        material, "energy", "Hours of training", "training_hours", hours, why, digits, {"kWh": used}
    )
    if sources:
        table.notes.append(f"Energy by {', '.join(sorted(sources))}.")
    section.blocks = [table, _totals(material, hours, kwh)]


def _totals(material: Material, hours: dict, kwh: dict) -> Table:
    rows, papers = [], []
    for title, metric, found in (("hours", "training_hours", hours), ("kWh", "energy", kwh)):
        paper = material.paper(metric, "total")
        # The paper's total is of its own systems; a dataset may have more.
        printed = {n.system for n in material.published(metric)} if paper else set()
        systems = [s for s in material.systems if s in printed or not printed]
        own = [found[system][0] for system in systems if system in found]
        whole = sum(own) if len(own) == len(systems) else None
        reason = "not all systems are there" if own else "cannot be measured here"
        here = None if whole is None else (whole, None, 1)
        papers += [paper] if paper else []
        rows.append([text(title), *triple(material, paper, here, 2, reason)])
    columns = ["All systems", "Paper", "Here", "Difference"]
    caption = "Totals, one seed of each system" + (" that the paper has" if papers else "")
    table = Table("energy_totals", caption, columns, rows)
    return finish(material, table, papers)


SECTION = SectionMaker(
    150, "Training time and energy", fill, ("SE Table 5",), ("training_hours", "energy")
)
