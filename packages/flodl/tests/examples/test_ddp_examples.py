import threading

import torch

from flodl import manual_seed
from flodl.distributed.collective.rendezvous import Rendezvous


def test_the_adversarial_pair_learns_the_circle_on_two_ranks(example):
    gan = example("ddp_gan")
    manual_seed(0)
    pairs = [(gan.generator(), gan.critic()) for _ in range(2)]
    before = gan.distance_from_circle(pairs[0][0])
    meeting, errors = Rendezvous.local(2), []

    def rank(k):
        try:
            gan.train(*pairs[k], k, meeting, steps=400)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=rank, args=(k,)) for k in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert not errors
    assert all(
        torch.equal(one, other)
        for one, other in zip(pairs[0][0].parameters(), pairs[1][0].parameters(), strict=True)
    )
    assert gan.distance_from_circle(pairs[0][0]) < 0.5 * before


def test_the_adversarial_pair_runs_alone(example, capsys, monkeypatch):
    for name in ("MASTER_ADDR", "MASTER_PORT", "RANK", "WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    example("ddp_gan").main(steps=3)
    assert capsys.readouterr().out.startswith("rank 0: ")


def test_the_walker_learns_to_win_and_replicas_stay_alike(example):
    nets, history = example("ddp_rl").main()
    assert torch.equal(nets[0].weight, nets[1].weight)
    assert history[0] < 0.75
    assert sum(history[-10:]) / 10 > 0.95
