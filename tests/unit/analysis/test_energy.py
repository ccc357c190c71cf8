"""Energy is measured or it is not: counters made by hand, and machines without any."""

import json
import time

import pytest
from hand_made import make_run

from experiments.analysis import energy
from experiments.analysis.shared.analysis import NotMeasured
from experiments.energy_meter import FILE, Meter, Rapl


def zone(folder, name: str, used: int, size: int = 1_000_000) -> None:
    (folder / name).mkdir(exist_ok=True)
    (folder / name / "energy_uj").write_text(f"{used}\n")
    (folder / name / "max_energy_range_uj").write_text(f"{size}\n")


def test_rapl_adds_packages_and_survives_their_overflow(tmp_path):
    zone(tmp_path, "intel-rapl:0", 900_000)
    zone(tmp_path, "intel-rapl:1", 0)
    zone(tmp_path, "intel-rapl:0:0", 0)  # a part of package 0 must not count twice
    counter = Rapl(tmp_path)
    zone(tmp_path, "intel-rapl:0", 100_000)
    zone(tmp_path, "intel-rapl:1", 500_000)
    zone(tmp_path, "intel-rapl:0:0", 999_999)
    assert counter.joules(1.0) == pytest.approx(0.7)
    assert counter.joules(1.0) == 0


class Fixed:
    source = "rapl"

    def joules(self, seconds: float) -> float:
        return 100.0


class Absent:
    def __init__(self):
        raise OSError("no RAPL counters")


def test_sessions_of_an_interrupted_training_add_up(tmp_path):
    run = make_run(tmp_path, stages={"train": {"seconds": 7200.0}})
    run.checkpoint.parent.mkdir()
    for _ in range(2):
        with Meter(run.path, interval=3600, counters=[Fixed]):
            pass
    with (run.path / FILE).open("a") as file:
        file.write('{"session": 1, "jou')  # killed while it wrote
    result = energy.compute(run, {})
    assert result["hours"] == 2.0
    assert result["kwh"] == pytest.approx(200 / 3.6e6)
    assert result["source"] == "rapl" and result["why"] is None


def test_no_counter_is_not_measured_and_says_why(tmp_path):
    run = make_run(tmp_path, stages={"train": {"seconds": 3600.0}})
    assert energy.compute(run, {})["why"] == "not measured: training ran without a meter"
    with Meter(run.path, interval=0.001, counters=[Absent]):
        time.sleep(0.01)
    assert len((run.path / FILE).read_text().splitlines()) == 1
    assert energy.compute(run, {}) == {
        "hours": 1.0,
        "kwh": None,
        "source": None,
        "measured": 0.0,
        "why": "not measured: no RAPL counters",
    }


def test_one_session_without_counter_leaves_no_sum(tmp_path):
    for session, joules in ((1, 5.0), (2, None)):
        record = {
            "session": session,
            "source": "rapl",
            "seconds": 1,
            "joules": joules,
            "why": "gone",
        }
        with (tmp_path / FILE).open("a") as file:
            file.write(json.dumps(record) + "\n")
    assert energy.measured(tmp_path / FILE, 2.0)["kwh"] is None


def test_unfinished_training(tmp_path):
    with pytest.raises(NotMeasured, match="training has not finished"):
        energy.compute(make_run(tmp_path), {})
