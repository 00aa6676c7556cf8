"""cartpole-ppo: a cart learns to balance a pole, by proximal policy optimisation.

Many carts are played at once; playing, estimating advantages and learning from them in
several passes are one compiled step (J. Schulman et al., *Proximal Policy Optimization
Algorithms*, 2017). `treadle sample RUN` shows an episode.

The cart is that of A. Barto, R. Sutton and C. Anderson, *Neuronlike Adaptive Elements
That Can Solve Difficult Learning Control Problems*, 1983, with Gymnasium's constants:
CartPole-v1.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

import treadle as td
import treadle.numpy as tnp
from treadle import nn, optim, rng
from treadle.data import Loader, Source
from treadle.recipes.config import MOST_STEPS, Training, option
from treadle.recipes.errors import UsageError
from treadle.recipes.step import TrainState
from treadle.recipes.task import Data, Facts, Learner, Metrics, Recipe, Trained, adamw

GRAVITY, CART, POLE, HALF, FORCE, SECONDS = 9.8, 1.0, 0.1, 0.5, 10.0, 0.02
FARTHEST, STEEPEST, LONGEST = 2.4, 12 * 2 * np.pi / 360, 500
_START, _TESTS, _WIDTH = 0.05, 100, 48


@dataclass(frozen=True)
class Config(Training):
    """The options."""

    steps: int = option(100, "how many updates to make", least=1, below=MOST_STEPS)
    batch_size: int = option(16, "carts that are played at once", least=1)
    learning_rate: float = option(2e-3, "the peak, after a warm-up", least=0)
    weight_decay: float = option(0.0, "how fast unused weights shrink", least=0)
    log_every: int = option(1, "steps between rows of metrics.jsonl", least=1)
    checkpoint_every: int = option(20, "steps between checkpoints, with tests", least=1)
    moves: int = option(128, "moves of each cart per update", least=1)
    passes: int = option(4, "how often an update learns from these moves", least=1)
    parts: int = option(4, "parts into which they are cut for that", least=1)
    discount: float = option(0.99, "what a later reward is worth", least=0, below=1)
    smoothing: float = option(0.95, "how far advantages look ahead", least=0, below=1)
    clip: float = option(0.2, "how far a pass may change a probability", least=0)
    entropy: float = option(0.01, "how much chance is rewarded", least=0)
    width: int = option(64, "units in each hidden layer", least=1)


@dataclass(frozen=True)
class Episode:
    """The options of `treadle sample`."""

    length: int = option(LONGEST, "moves that are shown, at most", least=1)
    temperature: float = option(0.0, "0: the likelier move; 1: as in training", least=0)
    seed: int = option(0, "other numbers start elsewhere", least=0, below=2**64)


def move(cart: Any, right: Any) -> tuple[Any, Any]:
    """Pushes a cart (4,), which has a place, a speed, an angle and its speed: the cart
    after a fiftieth of a second, and whether it is lost."""
    _, speed, angle, turning = cart
    force = tnp.where(right, FORCE, -FORCE)
    sine, cosine = tnp.sin(angle), tnp.cos(angle)
    mass, moment = CART + POLE, POLE * HALF
    push = (force + moment * turning**2 * sine) / mass
    inertia = HALF * (4 / 3 - POLE * cosine**2 / mass)
    bend = (GRAVITY * sine - cosine * push) / inertia
    gain = push - moment * bend * cosine / mass
    after = cart + SECONDS * tnp.stack([speed, gain, turning, bend])
    lost = (tnp.abs(after[0]) > FARTHEST) | (tnp.abs(after[2]) > STEEPEST)
    return after, lost


def start(key: rng.Key) -> td.Array:
    """A cart (4,) near the middle, its pole nearly upright."""
    return rng.uniform(key, (4,), minval=-_START, maxval=_START)


class Agent(nn.Module):
    """Carts (*batch, 4) to logits of going left or right (*batch, 2), and how many
    rewards are expected (*batch,). It holds the carts that it learns with."""

    policy: nn.MLP
    value: nn.MLP
    carts: nn.State
    ages: nn.State

    def __init__(self, config: Config, *, key: rng.Key) -> None:
        policy_key, value_key, start_key = rng.split(key, 3)
        sizes, count = (4, config.width, config.width), config.batch_size
        self.policy = nn.MLP((*sizes, 2), activation=nn.tanh, key=policy_key)
        self.value = nn.MLP((*sizes, 1), activation=nn.tanh, key=value_key)
        self.carts = nn.State(td.vmap(start)(rng.split(start_key, count)))
        self.ages = nn.State(tnp.zeros(count, td.int32))

    def __call__(self, carts: td.Array) -> tuple[td.Array, td.Array]:
        return self.policy(carts), self.value(carts)[..., 0]

    def play(self, moves: int, key: rng.Key) -> dict[str, td.Array]:
        """Plays the carts on; what happened (moves, carts). Lost carts start anew, and
        those that have lasted `LONGEST`."""

        def step(carry: Any, key: rng.Key) -> tuple[Any, dict[str, Any]]:
            carts, ages = carry
            act_key, start_key = rng.split(key)
            logits, value = self(carts)
            right = rng.categorical(act_key, logits)
            after, lost = td.vmap(move)(carts, right)
            ages = ages + 1
            over = lost | (ages >= LONGEST)
            happened = {"carts": carts, "right": right, "value": value, "age": ages}
            happened |= {"chance": chances(logits, right), "over": over}
            # What is only stopped because of its age would have gone on.
            happened["next"] = tnp.where(lost, 0.0, self(after)[1])
            anew = td.vmap(start)(rng.split(start_key, len(carts)))
            carts = tnp.where(over[:, None], anew, after)
            return (carts, tnp.where(over, 0, ages)), happened

        first = self.carts.value, self.ages.value
        last, happened = td.scan(step, first, rng.split(key, moves))
        self.carts.value, self.ages.value = last
        return happened


def chances(logits: Any, right: Any) -> td.Array:
    """The logarithms of the probabilities of what was done."""
    return tnp.take_along_axis(nn.log_softmax(logits), right[..., None], -1)[..., 0]


def advantages(config: Config, played: dict[str, Any]) -> td.Array:
    """By how much more was gained than expected (moves, carts): J. Schulman et al.,
    *High-Dimensional Continuous Control Using Generalized Advantage Estimation*."""

    def back(later: Any, now: Any) -> tuple[Any, Any]:
        value, following, over = now
        surprise = 1.0 + config.discount * following - value
        ahead = tnp.where(over, 0.0, config.discount * config.smoothing * later)
        return (found := surprise + ahead), found

    each = played["value"], played["next"], played["over"]
    return td.scan(back, tnp.zeros_like(each[0][0]), each, reverse=True)[1]


def loss(config: Config, agent: Agent, played: dict[str, Any]) -> td.Array:
    """What makes good moves likelier, but not much at once, and values right."""
    logits, value = agent(played["carts"])
    ratio = tnp.exp(chances(logits, played["right"]) - played["chance"])
    gain = played["advantage"]
    gain = (gain - gain.mean()) / (gain.std() + 1e-8)
    bounded = tnp.clip(ratio, 1 - config.clip, 1 + config.clip)
    policy = -tnp.minimum(ratio * gain, bounded * gain).mean()
    missed = ((value - played["value"] - played["advantage"]) ** 2).mean()
    spread = -(nn.softmax(logits) * nn.log_softmax(logits)).sum(-1).mean()
    return policy + missed / 2 - config.entropy * spread


def update(
    config: Config, optimizer: optim.Transform, state: TrainState, batch: Any
) -> tuple[TrainState, Metrics]:
    """Plays, and learns from it in several passes. There is no batch."""
    play_key, learn_key = rng.split(rng.fold_in(state.key, state.step))
    played, agent = nn.stateful(state.model.play)(config.moves, play_key)
    ended = played["over"].sum()
    lasted = tnp.where(played["over"], played["age"], 0).sum() / tnp.maximum(ended, 1)
    score = tnp.where(ended > 0, lasted, played["age"][-1].mean())
    played["advantage"] = advantages(config, played)
    count = config.moves * config.batch_size
    flat = {name: x.reshape(count, *x.shape[2:]) for name, x in played.items()}

    def learn(carry: Any, chosen: Any) -> tuple[Any, Any]:
        agent, after = carry
        part = {name: x[chosen] for name, x in flat.items()}
        value, grads = td.value_and_grad(partial(loss, config))(agent, part)
        updates, after = optimizer.update(grads, after, agent)
        return (optim.apply_updates(agent, updates), after), value

    keys = rng.split(learn_key, config.passes)
    orders = td.vmap(lambda key: rng.permutation(key, count))(keys)
    orders = orders.reshape(config.passes * config.parts, -1)
    (agent, after), losses = td.scan(learn, (agent, state.optimizer), orders)
    metrics = {"loss": losses.mean(), "return": score}
    return TrainState(agent, after, state.key, state.step), metrics


def play_best(agent: Agent, carts: Any, key: rng.Key | None) -> Any:
    """How long carts (n, 4) last, on average, if the likelier move is always made."""

    def step(carry: Any, _: None) -> tuple[Any, None]:
        carts, going, lasted = carry
        carts, lost = td.vmap(move)(carts, agent(carts)[0].argmax(-1))
        return (carts, going & ~lost, lasted + going), None

    begin = carts, tnp.ones(len(carts), bool), tnp.zeros(len(carts))
    (_, _, lasted), _ = td.scan(step, begin, length=LONGEST)
    return None, ({"return": lasted.mean()}, agent)


def load(config: Config) -> Data:
    """No data but where tests start: all that is learned from is played."""
    facts = {"training": config.batch_size, "test": _TESTS, "examples": "carts"}
    starts = np.random.default_rng(config.seed).uniform(-_START, _START, (_TESTS, 4))
    tests = [(starts.astype(np.float32), _TESTS)]
    nothing = Loader(Source(lambda n: n, MOST_STEPS, slow=False), 1, shuffle=False)
    return Data(nothing, lambda: tests, facts)


def learner(config: Config, facts: Facts, key: rng.Key) -> Learner:
    """The agent, and how it learns."""
    if config.moves * config.batch_size % config.parts:
        raise UsageError(
            f"--parts {config.parts}: {config.moves} --moves of {config.batch_size} "
            f"carts can't be cut into them\nChoose a divisor, such as --parts 4."
        )
    decayed = adamw(replace(config, steps=config.steps * config.passes * config.parts))
    optimizer = optim.chain(optim.clip_by_global_norm(0.5), decayed)
    agent, improve = Agent(config, key=key), partial(update, config, optimizer)
    return Learner(agent, optimizer, play_best, ("test_return", "max"), update=improve)


def sample(trained: Trained, wanted: Episode) -> Iterator[str]:
    """An episode, a line for each move: where the cart is, and how its pole leans."""
    key, act_key = rng.split(rng.key(wanted.seed))
    cart, moving, number, lost = start(key), td.jit(move), 0, False
    while number < min(wanted.length, LONGEST) and not lost:
        number += 1
        logits = trained.model(cart)[0] / max(wanted.temperature, 1e-6)
        cart, lost = moving(cart, rng.categorical(rng.fold_in(act_key, number), logits))
        x, degrees = float(cart[0]), float(tnp.rad2deg(cart[2]))
        column = round((1 + np.clip(x / FARTHEST, -1, 1)) / 2 * _WIDTH)
        pole = "\\" if degrees < -1 else "/" if degrees > 1 else "|"
        track = (" " * column + pole).ljust(_WIDTH + 1)
        yield f"{number:3} [{track}] {x:+.2f} {degrees:+5.1f} degrees\n"
    yield f"{'lost' if lost else 'still standing'} after {number} moves"


RECIPE = Recipe(
    name="cartpole-ppo",
    summary="a cart learns to balance a pole, by trying",
    config=Config,
    load=load,
    learner=learner,
    sample=sample,
    sampling=Episode,
)
