"""Policy gradients with replicas in one process: each plays games of its own, of its own length.

The game: a walker on a line of five places starts in the middle, and wins at the right end. Games
end after different numbers of moves, so gradients are weighted by the moves that each replica made.
"""

import torch
from torch import nn

from flodl.distributed.ddp import Ddp

PLACES = 5
MOST_MOVES = 20


def policy():
    """Make a policy that moves at random."""
    net = nn.Linear(PLACES, 2)
    nn.init.zeros_(net.weight)
    nn.init.zeros_(net.bias)
    return net


def play(net, rng):
    """Return the log-probabilities of the moves of one game, and whether it was won."""
    place, chosen = PLACES // 2, []
    while 0 < place < PLACES - 1 and len(chosen) < MOST_MOVES:
        here = nn.functional.one_hot(torch.tensor(place), PLACES).float()
        log_odds = torch.log_softmax(net(here), -1)
        move = int(torch.multinomial(log_odds.exp(), 1, generator=rng))
        chosen.append(log_odds[move])
        place += 1 if move else -1
    return chosen, place == PLACES - 1


def main(rounds=150, replicas=2, games=4):
    """Train and return the replicas and the share of won games in each round."""
    nets = [policy() for _ in range(replicas)]
    streams = [torch.Generator().manual_seed(rank) for rank in range(replicas)]
    optimizers = [torch.optim.Adam(net.parameters(), lr=0.02) for net in nets]
    history = []
    with Ddp.wrap(nets, ["cpu"] * replicas) as ddp:
        ddp.sync_params()
        for _ in range(rounds):
            moves, won = [], 0
            for net, rng, optimizer in zip(nets, streams, optimizers, strict=True):
                optimizer.zero_grad()
                played = [play(net, rng) for _ in range(games)]
                won += sum(is_won for _, is_won in played)
                chosen = [
                    log_odds * (1.0 if is_won else -1.0)
                    for log_oddses, is_won in played
                    for log_odds in log_oddses
                ]
                (-torch.stack(chosen).mean()).backward()
                moves.append(len(chosen))
            ddp.weighted_all_reduce_gradients(moves)
            for optimizer in optimizers:
                optimizer.step()
            history.append(won / (replicas * games))
    return nets, history


if __name__ == "__main__":
    _, shares = main()
    print(f"won {shares[0]:.0%} of the first games, {sum(shares[-10:]) / 10:.0%} of the last")
