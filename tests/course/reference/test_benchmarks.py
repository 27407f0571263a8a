"""The benchmark of models: it runs, all implementations agree, and one that differs is
refused."""

import runpy

import pytest
import torch

from labkit.course.paths import ROOT


def test_every_row_of_the_models_benchmark_has_times(capsys):
    script = runpy.run_path(str(ROOT / "benchmarks" / "models.py"))
    threads = torch.get_num_threads()
    assert script["main"](["--size", "tiny", "--rounds", "1", "--threads", str(threads)]) == 0
    rows = capsys.readouterr().out.splitlines()[2:]
    assert len(rows) == 16 and all(row.count("(") == 2 for row in rows)
    right, wrong = torch.ones(3), torch.tensor([1.0, 1.0, 1.1])
    with pytest.raises(ValueError, match="plain differs"):
        script["row"]({"transformers": (right, None), "plain": (wrong, None)}, 1e-4, 1)
