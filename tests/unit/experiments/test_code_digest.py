"""What counts as the code of an analysis."""

import pytest

from experiments import code_digest as module
from experiments.code_digest import code_digest, reached, report_digest
from experiments.paths import ROOT

ANALYSIS = ROOT / "experiments/analysis"


def names(*files: str) -> set[str]:
    found = reached([ROOT / file for file in files])
    return {str(path.relative_to(ROOT)) for path in found}


def test_the_code_of_an_analysis_is_all_that_it_calls():
    found = names("experiments/analysis/support.py")
    assert "experiments/analysis/shared/streams.py" in found  # imported by it
    assert "experiments/run_folder.py" in found  # imported by what it imports
    assert "sparse_fairseq/output_transform.py" in found  # of another package
    assert "experiments/analysis/lattice.py" not in found
    assert "experiments/report/page.py" not in found


def test_what_is_imported_by_its_name_counts():
    """Whether BLEU is of tokenised text is what the recipe of the data says."""
    assert "data_prep/recipes/kftt.py" in names("experiments/analysis/bleu.py")
    assert "data_prep/recipes/kftt.py" not in names("experiments/analysis/examples.py")


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A project of two files, one of which imports the other inside of a function."""
    folder = tmp_path / "experiments"
    folder.mkdir()
    (folder / "one.py").write_text("def f():\n    from .two import g\n    return g()\n")
    (folder / "two.py").write_text('"""Docs."""\n\n\ndef g():\n    return 1\n')
    monkeypatch.setattr(module, "ROOT", tmp_path)

    def digest() -> str:
        for function in (module._tree, module._imports, module._code):
            function.cache_clear()
        return code_digest(folder / "one.py")

    yield folder, digest
    for function in (module._tree, module._imports, module._code):
        function.cache_clear()


def test_only_what_is_run_counts(project):
    folder, digest = project
    before = digest()
    (folder / "two.py").write_text('"""Other docs."""\n\n\ndef g():  # why\n    return 1\n')
    assert digest() == before
    (folder / "two.py").write_text("def g():\n    return 2\n")
    assert digest() != before


def test_a_page_knows_which_code_made_it():
    assert report_digest() == report_digest()
    assert len(report_digest()) == 64
