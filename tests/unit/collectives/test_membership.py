"""The coordinator's decisions, without connections."""

import random

import pytest

from headrace._src.collectives.epoch import Epoch
from headrace._src.collectives.membership import (
    Begin,
    Broken,
    Member,
    OthersWait,
    RankCoordinator,
    Refused,
    Tell,
)


def member(id, host="h"):
    return Member(id, f"127.0.0.1:{id}", host, host)


def begun(instructions):
    """The epoch that instructions begin: its number and the ids by rank; all are told alike."""
    found = {t.id: t.message for t in instructions if isinstance(t.message, Begin)}
    assert found
    assert len(set(found.values())) == 1
    message = next(iter(found.values()))
    assert set(found) == {m.id for m in message.members}
    return message.epoch, [m.id for m in message.members]


def test_the_first_epoch_begins_when_all_are_there():
    machine = RankCoordinator(3)
    assert machine.joined(member(11), 2) == []
    assert machine.joined(member(12), -1) == []
    assert begun(machine.joined(member(13), 0)) == (1, [13, 11, 12])


def test_a_rank_is_given_once():
    machine = RankCoordinator(2)
    machine.joined(member(1), 0)
    (told,) = machine.joined(member(2), 0)
    assert told == Tell(2, Refused("rank 0 of 2 is taken"))
    (told,) = machine.joined(member(3), 5)
    assert "there are 2 ranks" in told.message.reason


def test_a_fixed_job_ends_with_a_member():
    machine = RankCoordinator(2)
    machine.joined(member(1), 0)
    machine.joined(member(2), 1)
    assert machine.left(2, "is gone") == [Tell(1, Broken(1, "rank 1 is gone"))]
    (told,) = machine.ready(1, 1)
    assert isinstance(told.message, Refused)
    (told,) = machine.joined(member(3), 1)
    assert isinstance(told.message, Refused)


def test_survivors_form_the_next_epoch():
    machine = RankCoordinator(3, least=1)
    for i in range(3):
        machine.joined(member(i), i)
    told = machine.left(0, "is gone")
    assert told == [Tell(i, Broken(1, "rank 0 is gone")) for i in (1, 2)]
    assert machine.ready(2, 1) == []
    assert machine.ready(2, 0) == []  # an old question
    assert begun(machine.ready(1, 1)) == (2, [1, 2])


def test_a_member_may_ask_before_the_loss_is_known():
    machine = RankCoordinator(3, least=2)
    for i in range(3):
        machine.joined(member(i), i)
    assert machine.ready(0, 1) == []
    assert machine.ready(1, 1) == []
    told = machine.left(2, "is gone")
    assert begun([t for t in told if isinstance(t.message, Begin)]) == (2, [0, 1])


def test_too_few_wait_for_others():
    machine = RankCoordinator(2, least=2)
    machine.joined(member(1), 0)
    machine.joined(member(2), 1)
    machine.left(1, "is gone")
    assert machine.ready(2, 1) == []
    # The survivor has the state, so it comes first, whatever rank the new process asks for.
    assert begun(machine.joined(member(3), 0)) == (2, [2, 3])


def test_the_last_does_not_wait_for_those_that_have_ended():
    machine = RankCoordinator(2, least=2)
    machine.joined(member(1), 0)
    machine.joined(member(2), 1)
    assert machine.left(2, "has ended", True) == [Tell(1, Broken(1, "rank 1 has ended", True))]
    (told,) = machine.ready(1, 1)
    assert told == Tell(1, Refused("too few ranks are left: the others have ended"))


def test_members_hear_of_processes_that_wait():
    machine = RankCoordinator(2, least=1)
    machine.joined(member(1), 0)
    machine.joined(member(2), 1)
    assert machine.joined(member(3), -1) == [Tell(1, OthersWait(1)), Tell(2, OthersWait(1))]
    machine.ready(1, 1)
    assert begun(machine.ready(2, 1)) == (2, [1, 2, 3])


@pytest.mark.parametrize("seed", range(30))
def test_any_history_leads_to_an_epoch_of_the_living(seed):
    """Processes join and die in any order; when all who live have asked, they are the members."""
    choose = random.Random(seed)
    machine = RankCoordinator(3, least=1)
    alive, epoch, members = [], 0, []
    for id in range(40):
        told = machine.joined(member(id), -1)
        alive.append(id)
        while len(alive) > 3 or (epoch and len(alive) > 1 and choose.random() < 0.5):
            gone = alive.pop(choose.randrange(len(alive)))
            told = machine.left(gone, "is gone") or told
        for asking in [i for i in members if i in alive]:
            told = machine.ready(asking, epoch) or told
        new = [t for t in told if isinstance(t.message, Begin)]
        if new:
            number, members = begun(new)
            assert number == epoch + 1
            assert set(members) == set(alive)
            epoch = number
    assert epoch > 10


def test_impossible_numbers_are_refused():
    for size, least in ((0, None), (2, 3), (2, 0)):
        with pytest.raises(ValueError, match="impossible numbers of ranks"):
            RankCoordinator(size, least)


def test_an_epoch_knows_its_hosts():
    members = [Member(i, "", host, host) for i, host in enumerate(["a", "b", "a", "b", "a"])]
    epoch = Epoch(1, members, 3)
    assert (epoch.on_host, epoch.groups) == ([1, 3], [[0, 2, 4], [1, 3]])
    assert (epoch.place, epoch.owners, epoch.ring) == (1, 2, [2, 3])
    assert Epoch(1, members, 4).ring == []  # it has no share: the other host has two processes
