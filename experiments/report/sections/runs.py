"""Every run, what is broken, and on which machine."""

from ..comparison import system_cell
from ..gather import Material
from ..parts import (
    Cell,
    Section,
    Table,
    duration_text,
    missing,
    number,
    text,
)
from ..section import SectionMaker


def fill(material: Material, section: Section) -> None:
    rows = []
    for run in material.runs:
        manifest, scores = run.manifest, material.scores(run)
        stages = manifest.get("stages") or {}
        seconds = (stages.get("train") or {}).get("seconds")
        commit = str(manifest.get("git_commit") or "")
        finished = str((stages.get("train") or {}).get("finished") or "")[:16].replace("T", " ")
        rows.append(
            [
                system_cell(run.system),
                text(run.member),
                text(", ".join(stages) or "none"),
                number(scores.get("epochs"), 0, "not known"),
                number(scores.get("updates"), 0, "not known"),
                Cell(duration_text(seconds), seconds) if seconds else missing("not finished"),
                text(finished) if finished else missing("not finished"),
                text(commit[:10] + ("+" if commit.endswith("+") else ""))
                if commit
                else missing("not known"),
            ]
        )
    columns = ["System", "Run", "Stages done", "Epochs", "Best at update", "Training", "Finished"]
    columns += ["Commit"]
    if rows:
        section.blocks = [Table("runs", "Every run", columns, rows, _machines(material))]
    problems = [f"{name}: {problem}" for name, problem in sorted(material.broken.items())]
    lacking = [s for s in material.all_systems if not any(r.system == s for r in material.runs)]
    section.missing = problems + [f"not run: {material.make(s)}" for s in lacking]


def _machines(material: Material) -> list[str]:
    """Hardware and versions, each once."""
    notes = []
    for run in material.runs:
        hardware, versions = run.manifest.get("hardware") or {}, run.manifest.get("versions") or {}
        gpus = ", ".join(hardware.get("gpus") or []) or "no GPU"
        parts = [str(hardware.get("cpu") or hardware.get("machine") or "unknown processor")]
        parts += [f"{hardware.get('cores', '?')} cores", gpus]
        parts += [f"{name} {version}" for name, version in versions.items()]
        notes.append("; ".join(parts))
    return list(dict.fromkeys(notes))


SECTION = SectionMaker(170, "Runs", fill, command="")
