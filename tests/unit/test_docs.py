"""What the documentation names exists: files, links, anchors, flags, targets, modules, imports."""

import json
import re
import subprocess
from functools import cache
from pathlib import Path

import pytest
from doc_pages import PAGES, ROOT, anchors, blocks

LINK = re.compile(r"\]\(([^)\s]+)\)")
# Flags of programs that are neither fairseq's nor ours.
FOREIGN = {"--no-build-isolation", "--nproc-per-node", "--nnodes", "--rdzv-endpoint", "--help"}
FOREIGN |= {"--standalone", "--node-rank", "--master-addr", "--master-port", "--extra-index-url"}
FOREIGN |= {"--config-dir", "--config-name"}  # Hydra
FOREIGN |= {"--rdzv-backend", "--rdzv-id", "--nproc_per_node", "--headless", "--local-ranks-filter"}
# What docs/extending.md adds for an example.
EXAMPLES = ("output_length", "digits", "digits_de_en")
MODULES = re.compile(r"python -m ((?:sparse_fairseq|data_prep|experiments)[\w.]*)")


def pages():
    return [pytest.param(page, id=str(page.relative_to(ROOT))) for page in PAGES]


def test_readme_is_a_door():
    assert len((ROOT / "README.md").read_text().splitlines()) <= 150


def readme_rows(head: str) -> dict[str, list[str]]:
    """The rows of the README's table whose head begins so: name -> cells."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    _, _, rest = text.partition(f"| {head}")
    table = rest.partition("\n\n")[0].splitlines()[2:]
    assert table, head
    cells = [[cell.strip() for cell in row.strip("|").split(" |")] for row in table]
    return {name: others for name, *others in cells}


def test_scores_of_the_readme_are_those_of_the_committed_runs():
    results = json.loads((ROOT / "experiments/results/multi30k_de_en/results.json").read_text())
    rows = readme_rows("Multi30k De→En | BLEU")
    assert {*rows} == {*results["systems"]}
    for system, cells in rows.items():
        keys = ("bleu", "chrf", "support", "empty_string")
        measured = [results["systems"][system][key] for key in keys]
        assert cells == [f"{x['mean']:,.1f} ± {x['std']:.1f}" for x in measured], system


@pytest.mark.parametrize("page", pages())
def test_links_lead_somewhere(page):
    for link in LINK.findall(page.read_text(encoding="utf-8")):
        if link.startswith(("http://", "https://")):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), f"{page.name}: {link}"
        if anchor:
            assert anchor in anchors(target), f"{page.name}: {link}: {sorted(anchors(target))}"


def test_every_page_is_listed():
    listed = {link for link in LINK.findall((ROOT / "docs/README.md").read_text())}
    assert {page.name for page in (ROOT / "docs").glob("*.md")} - {"README.md"} <= listed
    nav = (ROOT / "mkdocs.yml").read_text()
    for page in (ROOT / "docs").glob("*.md"):
        assert page.name == "README.md" or f": {page.name}\n" in nav, (
            f"mkdocs.yml lacks {page.name}"
        )


@cache
def known_flags() -> frozenset[str]:
    """Flags of fairseq's commands with everything of ours, and of our own programs."""
    from fairseq import options

    import sparse_fairseq.register  # noqa: F401
    from data_prep.__main__ import parser as data_parser
    from sparse_fairseq.flags import our_flags

    parsers = [options.get_training_parser(), options.get_generation_parser(interactive=True)]
    parsers += [options.get_preprocessing_parser(), options.get_validation_parser(), data_parser()]
    found = {flag for _, flags in our_flags() for flag in [x.name for x in flags]}
    for parser in parsers:
        found |= {flag for action in parser._actions for flag in action.option_strings}
    # What depends on a choice: flags stand in the sources of fairseq and of ours.
    folders = [Path(options.__file__).parent, ROOT / "experiments", ROOT / "sparse_fairseq"]
    for folder in folders:
        for path in folder.rglob("*.py"):
            text = path.read_text(encoding="utf-8", errors="replace")
            found |= set(re.findall(r"[\"'](--[a-z][\w-]*)[\"']", text))
            if folder != ROOT / "experiments":
                fields = re.findall(r"^    ([a-z]\w+): .* = (?:field|II)\(", text, re.M)
                found |= {f"--{name.replace('_', '-')}" for name in fields}
    return frozenset(found)


@pytest.mark.parametrize("page", pages())
def test_flags_exist(page):
    text = LINK.sub("]", page.read_text(encoding="utf-8"))
    text = re.sub(r"<!--.*?-->", "", text)
    named = set(re.findall(r"(?<![\w-])(--[a-z][\w-]*[a-z0-9])", text))
    unknown = {flag for flag in named - FOREIGN if flag not in known_flags()}
    negated = {flag for flag in unknown if f"--{flag.removeprefix('--no-')}" in known_flags()}
    assert not unknown - negated, f"{page.name} names flags that do not exist"


def test_every_flag_of_ours_is_documented():
    from sparse_fairseq.flags import our_flags

    text = "".join(page.read_text(encoding="utf-8") for page in (ROOT / "docs").glob("*.md"))
    ours = {flag.name for _, flags in our_flags() for flag in flags}
    assert not {flag for flag in ours if not re.search(rf"{flag}(?![\w-])", text)}


@pytest.mark.parametrize("page", pages())
def test_modules_and_paths_exist(page):
    text = page.read_text(encoding="utf-8")
    for module in MODULES.findall(text):
        if module.endswith(EXAMPLES):
            continue
        path = ROOT / module.rstrip(".").replace(".", "/")
        assert path.with_suffix(".py").is_file() or (path / "__main__.py").is_file(), module
    named = re.findall(
        r"`((?:sparse_fairseq|experiments|data_prep|tests|docs|\.github)/[^`\s]*)`", text
    )
    for name in named:
        if re.search(r"[<>*…]|/results/", name) or Path(name).stem in EXAMPLES:
            continue  # a pattern, what a benchmark writes, or an example
        assert (ROOT / name).exists(), f"{page.name}: {name}"


def test_the_drawings_of_the_architecture_name_files_that_exist():
    page = ROOT / "docs/architecture.md"
    drawn = "".join(block.code for block in blocks(page))
    assert "make demo" in drawn and "fairseq-generate" in drawn and "Trainer.train_step" in drawn
    places = [ROOT, ROOT / "sparse_fairseq", ROOT / "experiments"]
    named = set(re.findall(r"[a-z_/]+\.py", drawn))
    missing = {name for name in named if not any((place / name).is_file() for place in places)}
    assert len(named) > 20 and not missing


@cache
def targets() -> frozenset[str]:
    makefile = (ROOT / "Makefile").read_text()
    phony = re.search(r"^\.PHONY: (.*)$", makefile, re.M).group(1).split()
    configs = [path.stem for path in (ROOT / "experiments/configs").glob("*.yaml")]
    return frozenset([*phony, *configs, "mine", "demo_de_en"])


@pytest.mark.parametrize("page", pages())
def test_make_targets_exist(page):
    text = page.read_text(encoding="utf-8")
    for target in re.findall(r"(?:^|`)make ([a-z][\w/.-]*)", text, re.M):
        name = target.split("/")[0].removeprefix("clean-")
        assert not name or name in {*targets(), *EXAMPLES}, f"{page.name}: make {target}"


def test_every_python_block_parses_and_blocks_are_closed():
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        assert len(re.findall(r"^ *```", text, re.M)) % 2 == 0, page.name
        for block in blocks(page):
            if block.language == "python":
                compile(block.code, f"{block.page}:{block.line}", "exec")


def test_shell_blocks_that_run_parse():
    for page in PAGES:
        for block in blocks(page):
            if block.language in ("sh", "bash"):
                done = subprocess.run(["bash", "-n"], input=block.code, text=True)
                assert done.returncode == 0, f"{block.page}:{block.line}"
