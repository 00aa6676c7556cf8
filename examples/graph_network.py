"""A graph network: nodes send messages along edges, summed up by `segment_sum`.

It learns the number of marked nodes that are one or two steps away, on graphs of 20
nodes, and is tested on a graph of 200. That the order of nodes and edges does not
matter is checked.
"""

import treadle as td
import treadle.numpy as tnp
from treadle import nn, optim, rng


class Layer(nn.Module):
    message: nn.MLP
    update: nn.MLP

    def __init__(self, size, *, key):
        k1, k2 = rng.split(key)
        self.message = nn.MLP([size, 32, size], key=k1)
        self.update = nn.MLP([2 * size, 32, size], key=k2)

    def __call__(self, nodes, senders, receivers):
        messages = self.message(nodes)[senders]
        heard = td.segment_sum(messages, receivers, len(nodes))
        return nodes + self.update(tnp.concatenate([nodes, heard], -1))


class GraphNetwork(nn.Module):
    inner: nn.Linear
    layers: list
    out: nn.Linear

    def __init__(self, size, depth, *, key):
        k1, k2, *keys = rng.split(key, 2 + depth)
        self.inner = nn.Linear(1, size, key=k1)
        self.layers = [Layer(size, key=k) for k in keys]
        self.out = nn.Linear(size, 1, key=k2)

    def __call__(self, marks, senders, receivers):
        nodes = self.inner(marks[:, None])
        for layer in self.layers:
            nodes = layer(nodes, senders, receivers)
        return self.out(nodes)[:, 0]


def graph(key, nodes, edges):
    """Marks of nodes, edges at random; how many marks are one or two steps away."""
    k1, k2 = rng.split(key)
    marks = rng.bernoulli(k1, 0.3, (nodes,)).astype(float)
    senders, receivers = rng.randint(k2, (2, edges), 0, nodes)
    one = td.segment_sum(marks[senders], receivers, nodes)
    two = td.segment_sum(one[senders], receivers, nodes)
    return (marks, senders, receivers), one + two


def loss(model, graphs, wanted):
    return ((td.vmap(model)(*graphs) - wanted) ** 2).mean()


def shuffled(key, marks, senders, receivers):
    """The same graph with nodes and edges in another order, and that of the nodes."""
    k1, k2 = rng.split(key)
    order = rng.permutation(k1, len(marks))
    number = tnp.zeros_like(order).at[order].set(tnp.arange(len(order)))
    edges = rng.permutation(k2, len(senders))
    return (marks[order], number[senders][edges], number[receivers][edges]), order


def main(rounds=1000):
    k1, k2, k3, k4 = rng.split(rng.key(0), 4)
    model = GraphNetwork(16, 2, key=k1)
    schedule = optim.cosine_decay_schedule(1e-2, rounds)
    optimizer = optim.adam(schedule)

    @td.jit
    def train(model, keys):
        def step(carry, key):
            model, state = carry
            graphs, wanted = td.vmap(lambda k: graph(k, 20, 40))(rng.split(key, 8))
            value, slope = td.value_and_grad(loss)(model, graphs, wanted)
            updates, state = optimizer.update(slope, state, model)
            return (optim.apply_updates(model, updates), state), value

        return td.scan(step, (model, optimizer.init(model)), keys)

    (model, _), path = train(model, rng.split(k2, rounds))
    large, wanted = graph(k3, 200, 400)
    found = model(*large)
    error, spread = abs(found - wanted).mean(), wanted.std()
    print(f"squared error: {path[0]:.2f} before, {path[-20:].mean():.4f} after")
    print(f"200 nodes: mean error {error:.3f}; the numbers' deviation is {spread:.3f}")
    again, order = shuffled(k4, *large)
    change = abs(model(*again) - found[order]).max()
    print(f"in another order, results differ by {change:.1e}")
    assert error < 0.15 * spread and change < 1e-3


if __name__ == "__main__":
    main()
