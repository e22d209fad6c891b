"""What tells a process which rank it is."""

import pytest

from headrace._src.cli.launch.plan import plan_ranks
from headrace._src.core.config import read


def test_each_rank_has_its_environment():
    plans = plan_ranks(["train.py"], ["--steps=3"], 2, "127.0.0.1:99")
    assert [plan.name for plan in plans] == ["rank 0", "rank 1"]
    assert plans[1].arguments == ("train.py", "--steps=3")
    found = read(plans[1].environment)
    assert (found.rank, found.ranks, found.rendezvous) == (1, 2, "127.0.0.1:99")
    assert found.rendezvous_served


@pytest.mark.parametrize(
    "names",
    [("HOROVOD_RANK", "HOROVOD_SIZE"), ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE")],
)
def test_other_launchers_are_understood(names):
    found = read({names[0]: "2", names[1]: "4", "HEADRACE_RENDEZVOUS": "h:1"})
    assert (found.rank, found.ranks, found.rendezvous_served) == (2, 4, False)


def test_impossible_ranks_are_refused():
    for environment in ({"HEADRACE_RANK": "2", "HEADRACE_RANKS": "2"}, {"HEADRACE_RANK": "0"}):
        with pytest.raises(ValueError, match="HEADRACE_RANK is"):
            read(environment)


def test_alone():
    found = read({})
    assert (found.rank, found.ranks, found.rendezvous) == (None, None, None)
