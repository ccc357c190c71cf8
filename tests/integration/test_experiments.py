"""From raw files to scores through experiments.run, on generated data: interrupted and not."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from sacrebleu import corpus_bleu
from tiny_experiment import ROOT, Place

from data_prep.files import lock
from experiments.code_digest import report_digest
from experiments.fairseq_output import training_ended
from experiments.run import main
from sparse_fairseq.errors import UsageError

RUN = "tiny/relu15/seed1"


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Place:
    place = Place(tmp_path_factory.mktemp("experiments"))
    place.output = place.finish("whole", "relu15", "1")
    return place


def test_one_command_goes_from_raw_files_to_scores(place):
    assert place.json("data/tiny/data.json")["sizes"] == {"train": 600, "valid": 40, "test": 40}
    scores = place.json(f"whole/{RUN}/scores.json")
    assert scores["epochs"] == 3
    hypotheses = (place.folder / f"whole/{RUN}/hypotheses-test.txt").read_text().splitlines()
    references = (place.folder / "data/tiny/text/test.en").read_text().splitlines()
    assert scores["test"]["bleu"] == corpus_bleu(hypotheses, [references]).score
    assert "tok:13a" in scores["test"]["bleu_signature"]
    lines = (place.folder / f"whole/{RUN}/generate-test.txt").read_text().splitlines()
    certified = sum(line.startswith("E-") and "\tnormalized=yes\t" in line for line in lines)
    assert scores["test"]["certified_normalized"] == pytest.approx(100 * certified / 40)
    assert scores["train_words_per_cpu_second"] > 0  # the task logs its CPU time
    assert len(hypotheses) == 40
    assert not any("@@" in line or "&" in line for line in hypotheses)  # detokenised
    results = place.json("whole/tiny/results.json")
    assert results["systems"]["relu15"]["bleu"]["n"] == 1
    assert "train words/CPU s" in place.output  # the table
    assert "epochs" in place.output  # progress, as plain lines


def test_the_manifest_says_what_made_a_run(place):
    manifest = place.json(f"whole/{RUN}/manifest.json")
    assert set(manifest["stages"]) == {"train", "generate", "score"}
    assert manifest["stages"]["train"]["seconds"] > 0
    assert manifest["tau"] > 0
    assert manifest["commands"]["train"][0][0] == "fairseq-train"
    assert manifest["versions"]["torch"]
    assert manifest["hardware"]["cores"] >= 1
    assert manifest["data"]["checksums"] == place.json("data/tiny/data.json")["checksums"]
    assert manifest["config"]["train"]["lr"] == 0.003


def test_the_end_of_a_training_is_found_in_what_fairseq_logs(place):
    log = place.folder / f"whole/{RUN}/train.log"
    assert training_ended(log)
    assert not training_ended(log, log.stat().st_size)


def files(folder: Path) -> dict[str, float]:
    found = (path for path in folder.rglob("*") if path.is_file() and path.name != "results.json")
    return {str(path): path.stat().st_mtime_ns for path in found}


def test_a_second_call_does_nothing(place, capsys):
    before = files(place.folder / "whole")
    main(place.arguments("whole", "relu15", "1"))
    assert files(place.folder / "whole") == before
    assert "relu15" in capsys.readouterr().out


WITHOUT_TORCH = """
import sys
from experiments.run import main
main(sys.argv[1:])
assert not {"torch", "fairseq"} & set(sys.modules)
"""


def test_a_second_call_with_a_report_does_not_wait_for_torch(place):
    (place.folder / "whole/tiny/report.html").write_text(report_digest())
    command = [sys.executable, "-c", WITHOUT_TORCH]
    command += [*place.arguments("whole", "relu15", "1"), "--report"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "relu15" in done.stdout and "report.html" in done.stdout


def test_a_killed_run_goes_on_and_ends_with_the_same_numbers(place):
    process = place.start("killed", "relu15", "1")
    log = place.folder / f"killed/{RUN}/train.log"
    deadline = time.monotonic() + 900
    while not (log.is_file() and log.read_text().count("Start iterating over samples") == 2):
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGKILL)  # make, run.py and fairseq-train alike
    process.wait()
    assert not (place.folder / f"killed/{RUN}/scores.json").exists()
    place.finish("killed", "relu15", "1")
    assert "Loaded checkpoint" in log.read_text()
    for split in ("valid", "test"):
        name = f"{RUN}/hypotheses-{split}.txt"
        whole, killed = (place.folder / runs / name for runs in ("whole", "killed"))
        assert killed.read_text() == whole.read_text()
    scores, again = (place.json(f"{runs}/{RUN}/scores.json") for runs in ("whole", "killed"))
    assert again["valid_loss"] == scores["valid_loss"]
    for split in ("valid", "test"):
        del scores[split]["sentences_per_second"], again[split]["sentences_per_second"]
        assert again[split] == scores[split]


def test_a_checkpoint_that_a_kill_cut_short_is_replaced(tmp_path):
    import torch

    from experiments.stages import repair_last_checkpoint

    torch.save({"updates": 7}, tmp_path / "checkpoint_best.pt")
    whole = (tmp_path / "checkpoint_best.pt").read_bytes()
    (tmp_path / "checkpoint_last.pt").write_bytes(whole[: len(whole) // 2])
    repair_last_checkpoint(tmp_path)
    assert torch.load(tmp_path / "checkpoint_last.pt") == {"updates": 7}
    # Where fairseq saves by updates, the newest may not be the best; an average is no checkpoint.
    torch.save({"updates": 9}, tmp_path / "checkpoint_2_9.pt")
    torch.save({}, tmp_path / "checkpoint_ema.pt")
    (tmp_path / "checkpoint_last.pt").write_bytes(whole[: len(whole) // 2])
    repair_last_checkpoint(tmp_path)
    assert torch.load(tmp_path / "checkpoint_last.pt") == {"updates": 9}


def test_dry_run_prints_commands_that_can_be_pasted(place, capsys):
    main([*place.arguments("elsewhere"), "--dry-run"])
    lines = capsys.readouterr().out.splitlines()
    programs = [line.split()[0] for line in lines]
    assert programs == ["python"] + 2 * ["fairseq-train", "fairseq-generate", "fairseq-generate"]
    assert "--criterion=alpha_relu_loss --alpha=1.5 --tau=batch" in lines[1]
    assert not (place.folder / "elsewhere").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["relu15", "1", "--epochs=1"], "was trained longer .*max-epoch = 3, not 1"),
        (["relu15", "1", "--epochs=0"], "EPOCHS=0"),
        (["relu5"], "did you mean 'relu15'"),
        (["relu15", "x"], "seed 'x': a number is needed"),
        (["relu15", "1", "trian"], "did you mean 'train'"),
        (["relu15", "2", "generate"], "has not been trained"),
        (["relu15", "2", "score"], "has not been decoded"),
    ],
)
def test_mistakes_are_one_line_and_change_nothing(place, words, message):
    before = files(place.folder / "whole")
    with pytest.raises(UsageError, match=message) as raised:
        main(place.arguments("whole", *words))
    assert "\n" not in str(raised.value)
    done = files(place.folder / "whole")
    assert {path: done[path] for path in before} == before


def test_another_setting_is_refused_in_an_old_directory(place):
    place.configure(place.config.replace("lr: 0.003", "lr: 0.001"))
    try:
        with pytest.raises(UsageError, match="was trained with lr = 0.003, now it is 0.001"):
            main(place.arguments("whole", "relu15", "1"))
    finally:
        place.configure(place.config)


def test_missing_data_say_what_makes_them(place):
    arguments = place.arguments("whole", "relu15", "1", "generate")
    with pytest.raises(UsageError, match="no data in .*: make tiny/data"):
        main([*arguments, f"--data-root={place.folder / 'nowhere'}"])


def test_a_broken_manifest_is_named(place):
    folder = place.folder / "broken" / RUN
    folder.mkdir(parents=True)
    (folder / "manifest.json").write_text('{"stages": ')
    with pytest.raises(UsageError, match="manifest.json is broken"):
        main(place.arguments("broken", "relu15", "1"))


def test_ctrl_c_ends_a_call_that_waits_for_a_run(place):
    log = place.folder / "waiting.log"
    with lock(place.folder / "waiting" / RUN / ".lock", "a test"):
        process = place.start("waiting", "relu15", "1")
        deadline = time.monotonic() + 300
        while "waiting: another process works on" not in log.read_text():
            assert process.poll() is None and time.monotonic() < deadline
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 130
    assert "the same command goes on from here" in log.read_text()


HOLDER = """
import sys
from pathlib import Path
from data_prep.files import lock
from experiments.processes import Processes
folder = Path(sys.argv[1])
with lock(folder / ".lock", "a test") as held:
    Processes().run(["python", "-c", "import time; time.sleep(60)"], folder / "log", held, 1)
"""


def test_an_orphan_keeps_the_lock_of_its_run(tmp_path):
    import fcntl

    parent = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(tmp_path)], cwd=ROOT, start_new_session=True
    )
    try:
        deadline = time.monotonic() + 60
        while not (tmp_path / "log").exists():
            assert time.monotonic() < deadline
            time.sleep(0.05)
        time.sleep(1)
        parent.kill()
        parent.wait()
        with (tmp_path / ".lock").open() as file, pytest.raises(BlockingIOError):
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    finally:
        os.killpg(parent.pid, signal.SIGKILL)
