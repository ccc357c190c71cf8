"""Hours and kWh of training (SE Table 5). Energy is measured while training runs, by
`energy_meter`, or it is not measured; it is never computed from a nominal power.

``result``:

    hours       of training, from the manifest; null if it has not finished
    kwh         measured energy, or null
    source      "nvidia-smi" (the GPUs) or "rapl" (the processors, with all that ran beside); null
    measured    share of the training time during which the meter ran
    why         why kwh is null
"""

import json
from pathlib import Path

from ..energy_meter import FILE
from ..run_folder import Run
from .shared.analysis import Analysis, NotMeasured

JOULES_PER_KWH = 3.6e6


def compute(run: Run, settings: dict) -> dict:
    stage = run.manifest["stages"].get("train")
    if stage is None:
        raise NotMeasured("not run yet: training has not finished")
    seconds = stage.get("seconds")
    hours = None if seconds is None else seconds / 3600
    return {"hours": hours, **measured(run.path / FILE, seconds)}


def measured(path: Path, training_seconds: float | None) -> dict:
    """The sum over all sessions; null if one of them could not be measured."""
    nothing = {"kwh": None, "source": None, "measured": 0.0}
    if not path.exists():
        return {**nothing, "why": "not measured: training ran without a meter"}
    last: dict[float, dict] = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            record = json.loads(line)
            last[record["session"]] = record
        except (ValueError, KeyError):  # cut short by a kill
            continue
    if missing := [record for record in last.values() if record["joules"] is None]:
        return {**nothing, "why": f"not measured: {missing[0]['why']}"}
    joules, seconds = (sum(r[key] for r in last.values()) for key in ("joules", "seconds"))
    return {
        "kwh": joules / JOULES_PER_KWH,
        "source": ", ".join(sorted({record["source"] for record in last.values()})),
        "measured": seconds / training_seconds if training_seconds else None,
        "why": None,
    }


ANALYSIS = Analysis(compute, lambda run, settings: [run.path / FILE])

if __name__ == "__main__":
    ANALYSIS.main()
