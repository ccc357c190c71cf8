"""Runs experiments: what is left out means every system, every seed, every stage of the config.

Runs stand side by side where there is no GPU. What is there already is not done again; what was
interrupted goes on.
"""

import argparse
import functools
import json
import os
import re
import shlex
import shutil
import sys
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path
from typing import NoReturn

if not __package__:  # python experiments/run.py
    sys.path[0] = str(Path(__file__).parents[1])
    __package__ = "experiments"

from data_prep.files import lock
from sparse_fairseq.errors import UsageError

from .code_digest import report_digest
from .commands import Workers, find_workers, launched_rank
from .flags import check_command
from .paths import ROOT, readable
from .plan import STAGES, Plan, dataset_name, make_plan
from .processes import Processes, StageFailed, termination_as_interrupt
from .results import table, write_results
from .run_folder import MANIFEST, Run, find_runs
from .runs_progress import RunsProgress
from .stages import RunStages, is_finished, join_training


class Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UsageError(message)


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = Parser(prog="python -m experiments.run", description=__doc__)
    parser.add_argument("dataset", help="a name of experiments/configs, or demo_<src>_<tgt>")
    parser.add_argument("system", nargs="?", default="all", help="or just `data` or `report`")
    parser.add_argument("seed", nargs="?", default="all", help="1 or seed1; or ensemble")
    parser.add_argument("stage", nargs="?", default="all", help=", ".join(STAGES))
    parser.add_argument("--pair", help="languages of the demo, as in fr-en")
    parser.add_argument("--dry-run", action="store_true", help="print the commands")
    parser.add_argument("--report", action="store_true", help="analyse all runs at the end")
    parser.add_argument("--clean", action="store_true", help="remove data and runs, if you agree")
    parser.add_argument("--raw", type=Path, help="where downloaded files lie already")
    parser.add_argument("--seeds", help='instead of the config\'s, as in "1 2 3"')
    parser.add_argument("--epochs", type=int, help="instead of the config's max-epoch")
    parser.add_argument("--languages", help="restrict the data to these languages")
    parser.add_argument("--gpus", type=int, help="how many to use; default: all there are")
    parser.add_argument("--jobs", type=int, help="runs side by side; default: cores, 1 on GPUs")
    parser.add_argument("--configs", type=Path, help="a folder of configs of your own")
    parser.add_argument("--data-root", type=Path, default=ROOT / "data")
    parser.add_argument("--runs-root", type=Path, default=ROOT / "runs")
    return parser.parse_args(arguments)


def main(arguments: list[str] | None = None) -> None:
    options = parse(arguments)
    try:
        if options.clean:
            clean(dataset_name(options), options.data_root, options.runs_root)
            return
        plan = make_plan(options)
        if plan.options.dry_run:
            show(plan)
        else:
            do(plan)
    except (OSError, ValueError) as error:
        raise UsageError(one_line(error)) from error


def clean(dataset: str, *roots: Path) -> None:
    """Removes what a dataset's targets made, after a question."""
    if not re.fullmatch(r"\w[\w.-]*", dataset):
        raise UsageError(f"{dataset!r} is no name of a dataset")
    folders = [root.expanduser() / dataset for root in roots]
    if not any(folder.exists() for folder in folders):
        print(f"nothing to remove: no {', no '.join(map(str, folders))}")
        return
    question = f"Remove {' and '.join(map(str, folders))} with all checkpoints? [y/N] "
    print(question, end="", flush=True)
    if sys.stdin.readline().strip() != "y":
        print("nothing was removed")
        return
    for folder in folders:
        shutil.rmtree(folder, ignore_errors=not folder.exists())


def do(plan: Plan) -> None:
    processes = Processes()
    try:
        with termination_as_interrupt():
            if plan.stages:
                prepare_data(plan, processes)
                perform(plan, processes)
            if plan.options.report and launched_rank() == 0:
                report(plan, processes)
    except KeyboardInterrupt:
        processes.stop()
        print("\ninterrupted: the same command goes on from here", file=sys.stderr)
        raise SystemExit(130) from None


def show(plan: Plan) -> None:
    """Prints every command line, as a user could paste it into a shell at the project's root."""
    commands = [plan.data_command] if "data" in plan.stages else []
    if plan.runs:
        commands += plan.all_commands(plan.runs, find_workers(plan.options.gpus, pretend=True))
    check_flags(plan, commands)
    if plan.options.report:
        commands += plan.report_commands
    for command in commands:
        print(shlex.join(command))


def check_flags(plan: Plan, commands: list[list[str]]) -> None:
    """Refuses a config with flags that fairseq does not have, before hours are spent."""
    for command in commands:
        check_command(command, plan.config.dataset)


def prepare_data(plan: Plan, processes: Processes) -> None:
    # With --raw, data that are there are compared with what it holds.
    compare = plan.options.raw is not None and "data" in plan.stages
    if plan.is_prepared() and not compare:
        return
    if "data" not in plan.stages:
        raise UsageError(f"no data in {readable(plan.data)}: {plan.make('data')}")
    if plan.runs:  # preparing may take hours, too
        check_flags(plan, plan.all_commands(plan.runs, find_workers(plan.options.gpus)))
    processes.run_visibly(plan.data_command)


def perform(plan: Plan, processes: Processes) -> None:
    left = [run for run in plan.runs if not is_finished(plan, run)]
    if left:
        _perform(plan, left, processes)
    if plan.runs and "score" in plan.stages and not plan.options.report and launched_rank() == 0:
        print(write_results(plan.options.runs_root, plan.config.dataset))


def report(plan: Plan, processes: Processes) -> None:
    """Analyses all runs of the dataset and writes the page, unless it is newer than they are."""
    dataset, root = plan.config.dataset, plan.options.runs_root
    page, runs = root / dataset / "report.html", find_runs(root, dataset)
    if not runs:
        raise UsageError(f"no runs in {readable(root / dataset)}: {plan.make()}")
    failed = False
    if _is_older(page, root / dataset, runs):
        analyse, write_page = plan.report_commands
        failed = not processes.run_visibly(analyse, allow_failure=True)
        write_results(root, dataset)
        processes.run_visibly(write_page)
    print(_results_table(root, dataset))
    print(f"\nreport: {readable(page)}")
    if failed:
        raise UsageError("an analysis failed, as said above and on the page: try again")


def _is_older(page: Path, folder: Path, runs: list[Run]) -> bool:
    """Whether a page is not there, was made before what it would show, of other runs or by other
    code, or lacks an analysis that failed."""
    listed = _runs_of_results(folder)
    if not page.is_file() or listed not in (None, {(run.system, run.seed) for run in runs}):
        return True
    paths = [path for x in (folder, *(run.path for run in runs)) for path in x.glob("analysis/*")]
    analyses = [path for path in paths if path.suffix == ".json"]
    parts = (MANIFEST, "scores.json", "train.log")
    shown = [folder / "results.json", *analyses]
    shown += [run.path / name for run in runs for name in parts]
    newest = max((path.stat().st_mtime for path in shown if path.is_file()), default=0.0)
    failed = any(b'"error":' in path.read_bytes() for path in analyses)
    if page.stat().st_mtime < newest or failed:
        return True
    with page.open(encoding="utf-8", errors="replace") as file:
        return report_digest() not in file.read(2000)


def _runs_of_results(folder: Path) -> set[tuple[str, int | None]] | None:
    """The runs that results.json has, which is written before the page; None if it is gone."""
    try:
        results = json.loads((folder / "results.json").read_text(encoding="utf-8"))
        return {(entry["system"], entry["seed"]) for entry in results["runs"]}
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _results_table(root: Path, dataset: str) -> str:
    try:
        return table(json.loads((root / dataset / "results.json").read_text(encoding="utf-8")))
    except (FileNotFoundError, ValueError):
        return write_results(root, dataset)


def _perform(plan: Plan, runs: list[Run], processes: Processes) -> None:
    workers = find_workers(plan.options.gpus)
    cores = len(os.sched_getaffinity(0))
    jobs = plan.options.jobs or (cores if "cpu" in workers.flags else 1)
    # Workers of one run meet, so all of them must do the runs in one order.
    jobs = 1 if workers.count > 1 else max(1, min(jobs, len(runs)))
    check_flags(plan, plan.all_commands(runs, workers))
    if workers.rank > 0:
        _join(plan, runs, workers, cores, processes)
        return
    if note := plan.batch_note(workers):
        print(f"sparse_fairseq: {note}", file=sys.stderr)
    with RunsProgress(plan.config, len(runs), plan.stages, plan.sentences()) as progress:
        one = functools.partial(
            _perform_one, plan, workers, max(1, cores // jobs), processes, progress
        )
        with ThreadPoolExecutor(jobs) as pool:
            futures = [pool.submit(one, run) for run in runs]
            try:
                while wait(futures, timeout=0.5).not_done:
                    pass  # short waits, so that Ctrl-C is noticed
            except KeyboardInterrupt:
                pool.shutdown(wait=False, cancel_futures=True)
                processes.stop()
                raise
    _raise_failures([error for future in futures if (error := future.exception())])


def _join(
    plan: Plan, runs: list[Run], workers: Workers, threads: int, processes: Processes
) -> None:
    """The part of all workers but the first that torchrun or SLURM started; it does the rest."""
    failures: list[BaseException] = []
    trained = [run for run in runs if "train" in plan.stages and run.seed is not None]
    for run in trained:
        try:
            join_training(plan, run, workers, threads, processes)
        except (StageFailed, UsageError) as failure:
            failures.append(failure)
    _raise_failures(failures)


def _perform_one(
    plan: Plan,
    workers: Workers,
    threads: int,
    processes: Processes,
    progress: RunsProgress,
    run: Run,
) -> None:
    """All stages of a run. A failed run does not keep the others from going on."""
    try:
        with lock(run.path / ".lock", run.name, lambda: processes.stopping) as held:
            # A new Run: while we waited, somebody else may have done all of it.
            stages = RunStages(plan, Run(run.path), workers, threads, processes, held)
            for stage in plan.stages:
                if stage != "data":
                    stages.perform(stage, functools.partial(progress.line, run.name, stage))
                    progress.finish(run.name, stage)
    except (OSError, ValueError) as error:  # a full disk, a file that somebody broke
        raise StageFailed(f"{run.name}: {one_line(error)}") from error


def _raise_failures(failures: list[BaseException]) -> None:
    for failure in failures:
        if not isinstance(failure, (StageFailed, UsageError)):
            raise failure
    messages = [str(failure).removeprefix("sparse_fairseq: error: ") for failure in failures]
    for message in messages[:-1]:
        print(f"sparse_fairseq: error: {message}", file=sys.stderr)
    if messages:
        raise UsageError(messages[-1])


def one_line(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__


if __name__ == "__main__":
    main()
