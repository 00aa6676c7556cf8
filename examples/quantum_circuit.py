"""A quantum circuit finds the lowest energy of a chain of spins.

The state of n qubits is an array of complex64 with n axes of length 2; a gate is a
small matrix applied to one or two of them. Energies are checked against the eigenvalues
of the Hamiltonian, and gradients against the rule of parameter shifts.
"""

import math

import treadle as td
import treadle.numpy as tnp
from treadle import optim, rng

X = tnp.array([[0, 1], [1, 0]], tnp.complex64)
Z = tnp.array([[1, 0], [0, -1]], tnp.complex64)
ONE = tnp.eye(2, dtype=tnp.complex64)
FIELD = 1.0


def apply(gate, state, *qubits):
    """A gate of (2,) * 2k on k qubits."""
    k = len(qubits)
    state = tnp.tensordot(gate, state, axes=(tuple(range(k, 2 * k)), qubits))
    return tnp.moveaxis(state, tuple(range(k)), qubits)


def rx(angle):
    return tnp.cos(angle / 2) * ONE - 1j * tnp.sin(angle / 2) * X


def rz(angle):
    return tnp.cos(angle / 2) * ONE - 1j * tnp.sin(angle / 2) * Z


def rzz(angle):
    """Turns two qubits by an angle, forth if they are equal, back if not."""
    both = tnp.kron(Z, Z)
    gate = tnp.cos(angle / 2) * tnp.eye(4) - 1j * tnp.sin(angle / 2) * both
    return gate.reshape(2, 2, 2, 2)


def circuit(angles):
    """angles: (layers, qubits, 3)."""
    layers, n, _ = angles.shape
    state = tnp.zeros((2,) * n, tnp.complex64).at[(0,) * n].set(1)
    for i in range(n):
        state = apply(rx(math.pi / 2), state, i)
    for layer in range(layers):
        for i in range(n):
            state = apply(rzz(angles[layer, i, 0]), state, i, (i + 1) % n)
        for i in range(n):
            state = apply(rz(angles[layer, i, 2]) @ rx(angles[layer, i, 1]), state, i)
    return state


def energy(state):
    """Of Ising's chain in a transverse field: -sum ZZ - FIELD sum X."""
    n = state.ndim
    total = 0.0
    for i in range(n):
        turned = apply(Z, apply(Z, state, i), (i + 1) % n)
        total -= tnp.vdot(state, turned).real
        total -= FIELD * tnp.vdot(state, apply(X, state, i)).real
    return total


def hamiltonian(n):
    """The same as a matrix."""
    basis = tnp.eye(2**n, dtype=tnp.complex64).reshape((2**n,) + (2,) * n)

    def image(state):
        out = tnp.zeros_like(state)
        for i in range(n):
            out -= apply(Z, apply(Z, state, i), (i + 1) % n)
            out -= FIELD * apply(X, state, i)
        return out.ravel()

    return td.vmap(image)(basis)


def main(n=5, layers=2, rounds=100):
    angles = 0.3 * rng.normal(rng.key(0), (layers, n, 3))
    run = td.jit(lambda angles: energy(circuit(angles)))
    slope = td.jit(td.grad(lambda angles: energy(circuit(angles))))(angles)
    shift = tnp.zeros_like(angles).at[1, 2, 1].set(math.pi / 2)
    by_shifts = (run(angles + shift) - run(angles - shift)) / 2
    print(f"a derivative: {slope[1, 2, 1]:.5f}, by shifts: {by_shifts:.5f}")
    assert abs(slope[1, 2, 1] - by_shifts) < 1e-4

    optimizer = optim.adam(0.05)

    @td.jit
    def train(angles):
        def step(carry, _):
            angles, state = carry
            value, slope = td.value_and_grad(lambda a: energy(circuit(a)))(angles)
            updates, state = optimizer.update(slope, state, angles)
            return (optim.apply_updates(angles, updates), state), value

        return td.scan(step, (angles, optimizer.init(angles)), length=rounds)

    (angles, _), path = train(angles)
    state = circuit(angles)
    lowest = tnp.linalg.eigvalsh(hamiltonian(n))[0]
    norm = tnp.vdot(state, state).real
    print(
        f"energy {path[0]:.3f} before, {path[-1]:.4f} after; the lowest is {lowest:.4f}"
    )
    assert abs(norm - 1) < 1e-4
    assert lowest - 1e-3 < path[-1] < 0.95 * lowest


if __name__ == "__main__":
    main()
