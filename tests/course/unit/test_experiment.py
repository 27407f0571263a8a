"""The conclusions that experiment() allows."""

from labkit.course.report import Status
from labkit.learner.progress.experiment import experiment


def text(report):
    return " ".join(text for _, text in report.rows)


def test_five_seeds_conclude_and_four_do_not():
    run = lambda value, seed: value + seed / 10  # noqa: E731
    assert experiment(run, (0, 1), range(5)).status is Status.PASSED
    few = experiment(run, (0, 1), range(4))
    assert few.status is Status.HELP and "5 seeds" in text(few)


def test_pairs_are_compared_by_seed_and_chance_is_said_once(capsys):
    apart = text(experiment(lambda value, seed: value + seed / 10, (0, 1, 2), range(5)))
    assert "1 is higher in 5 of 5 seeds" in apart and apart.count("0.8%") == 1
    overlap = text(experiment(lambda value, seed: value + seed, (0, 0.5), range(5)))
    assert "overlap; 0.5 is higher in 5 of 5 seeds" in overlap and "%" not in overlap
    assert capsys.readouterr().out.splitlines()[0].split() == ["seed", *"01234"]
