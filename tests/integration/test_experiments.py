"""From raw files to scores through experiments.run, on generated data: interrupted and not."""

import gzip
import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from data_prep.files import lock
from experiments.run import main
from experiments.scoring import training_ended
from sparse_fairseq.errors import UsageError

ROOT = Path(__file__).parents[2]
CONFIG = """
about: digits in words, to be reversed
data: {recipe: multi30k, source: de, target: en, operations: 60}
systems: [relu15, softmax]
batch: {tokens: 400}
train:
  arch: transformer
  encoder-layers: 1
  decoder-layers: 1
  encoder-embed-dim: 32
  decoder-embed-dim: 32
  encoder-ffn-embed-dim: 64
  decoder-ffn-embed-dim: 64
  encoder-attention-heads: 2
  decoder-attention-heads: 2
  optimizer: adam
  lr: 0.003
  max-epoch: 3
  num-workers: 0
generate: {beam: 2, batch-size: 32}
"""
WORDS = {
    "de": ["null", "eins", "zwei", "drei", "vier", "fünf", "sechs", "sieben", "acht", "neun"],
    "en": ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"],
}
RUN = "tiny/relu15/seed1"


def write_raw(folder: Path) -> None:
    """Files under the names of multi30k/dataset."""
    rng = random.Random(1)
    folder.mkdir()
    for split, size in (("train", 600), ("val", 40), ("test_2016_flickr", 40)):
        lines = [[rng.randrange(10) for _ in range(rng.randint(2, 6))] for _ in range(size)]
        for language, words in WORDS.items():
            order = 1 if language == "de" else -1
            text = "".join(" ".join(words[i] for i in x[::order]) + ".\n" for x in lines)
            with gzip.open(folder / f"{split}.{language}.gz", "wt", encoding="utf-8") as file:
                file.write(text)


class Place:
    """A folder with raw files, a config and prepared data."""

    def __init__(self, folder: Path):
        self.folder = folder
        write_raw(folder / "raw")
        (folder / "configs").mkdir()
        (folder / "configs/tiny.yaml").write_text(CONFIG)

    def arguments(self, runs: str, *words: str) -> list[str]:
        folders = {"configs": "configs", "data-root": "data", "runs-root": runs, "raw": "raw"}
        flags = [f"--{name}={self.folder / path}" for name, path in folders.items()]
        return ["tiny", *words, *flags]

    def start(self, runs: str, *words: str) -> subprocess.Popen:
        command = [sys.executable, "-m", "experiments.run", *self.arguments(runs, *words)]
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
        # With a file, not a pipe: whoever reads until the end would wait for orphans, too.
        with (self.folder / f"{runs}.log").open("a") as log:
            return subprocess.Popen(
                command, cwd=ROOT, env=environment, stdout=log, stderr=log, start_new_session=True
            )

    def finish(self, runs: str, *words: str) -> str:
        process = self.start(runs, *words)
        code = process.wait(900)
        text = (self.folder / f"{runs}.log").read_text()
        assert code == 0, text
        return text

    def json(self, path: str) -> dict:
        return json.loads((self.folder / path).read_text())


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Place:
    place = Place(tmp_path_factory.mktemp("experiments"))
    place.output = place.finish("whole", "relu15", "1")
    return place


def test_one_command_goes_from_raw_files_to_scores(place):
    assert place.json("data/tiny/data.json")["sizes"] == {"train": 600, "valid": 40, "test": 40}
    scores = place.json(f"whole/{RUN}/scores.json")
    assert scores["epochs"] == 3
    assert scores["test"]["bleu"] >= 0
    assert "tok:13a" in scores["test"]["bleu_signature"]
    assert scores["test"]["exact_normalized"] is not None
    hypotheses = (place.folder / f"whole/{RUN}/hypotheses-test.txt").read_text().splitlines()
    assert len(hypotheses) == 40
    assert not any("@@" in line or "&" in line for line in hypotheses)  # detokenised
    results = place.json("whole/tiny/results.json")
    assert results["systems"]["relu15"]["bleu"]["n"] == 1
    assert "train words/s" in place.output  # the table
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
    (place.folder / "whole/tiny/report.html").write_text("newer than all runs")
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
    config = place.folder / "configs/tiny.yaml"
    config.write_text(CONFIG.replace("lr: 0.003", "lr: 0.001"))
    try:
        with pytest.raises(UsageError, match="was trained with lr = 0.003, now it is 0.001"):
            main(place.arguments("whole", "relu15", "1"))
    finally:
        config.write_text(CONFIG)


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
