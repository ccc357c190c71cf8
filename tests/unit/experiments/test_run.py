"""The command line: what it shows, what it refuses, and how it ends."""

from experiments.run import main


def shown(place, capsys, *words: str) -> list[str]:
    main([*place.arguments(), "--dry-run", *words])
    return capsys.readouterr().out.splitlines()


def test_a_dry_run_shows_every_command_up_to_the_report(place, capsys):
    lines = shown(place, capsys, "--report")
    modules = [line.split()[2] for line in lines if line.startswith("python -m ")]
    assert modules == ["data_prep", "experiments.analysis", "experiments.report"]
    assert f"--runs-root {place.folder / 'runs'}" in lines[-1]
    assert len(shown(place, capsys)) == len(lines) - 2


def test_a_dry_run_shows_commands_for_gpus_that_are_not_here(place, capsys):
    train = shown(place, capsys, "--gpus=8")[1]
    assert "--distributed-world-size=8" in train and "--max-tokens=50 " in train
