"""Rotations of space, against SciPy."""

from __future__ import annotations

import itertools
import warnings
from typing import Any

import numpy as np
import pytest
from scipy.spatial.transform import Rotation as Wanted
from scipy.spatial.transform import Slerp as WantedSlerp

import treadle as td
import treadle.numpy as tnp
from treadle.scipy.spatial.transform import Rotation, Slerp

rng = np.random.default_rng(0)
LEADS = ((), (6,))
SEQUENCES = [
    "".join(axes)
    for letters in ("xyz", "XYZ")
    for axes in itertools.product(letters, repeat=3)
    if axes[0] != axes[1] != axes[2]
]


def close(found: Any, wanted: Any, tolerance: float = 1e-10) -> None:
    np.testing.assert_allclose(found, wanted, rtol=tolerance, atol=tolerance)


def pair(lead: tuple[int, ...]) -> tuple[Rotation, Wanted]:
    quaternions = rng.normal(size=(*lead, 4))
    return Rotation.from_quat(quaternions), Wanted.from_quat(quaternions)


@pytest.mark.parametrize("lead", LEADS)
def test_forms_are_scipys(lead: tuple[int, ...]) -> None:
    ours, theirs = pair(lead)
    close(ours.as_quat(), theirs.as_quat())
    close(ours.as_quat(canonical=True), theirs.as_quat(canonical=True))
    close(ours.as_quat(scalar_first=True), theirs.as_quat(scalar_first=True))
    close(ours.magnitude(), theirs.magnitude())
    for form in ("matrix", "rotvec", "mrp"):
        wanted = getattr(theirs, f"as_{form}")()
        close(getattr(ours, f"as_{form}")(), wanted)
        made = getattr(Rotation, f"from_{form}")(wanted)
        close(made.as_matrix(), theirs.as_matrix())
    close(ours.as_rotvec(degrees=True), theirs.as_rotvec(degrees=True))


@pytest.mark.parametrize("lead", LEADS)
def test_what_rotations_do_is_scipys(lead: tuple[int, ...]) -> None:
    (ours, theirs), (others, their_others) = pair(lead), pair(lead)
    vectors = rng.normal(size=(*lead, 3))
    close((ours * others).as_matrix(), (theirs * their_others).as_matrix())
    close(ours.inv().as_matrix(), theirs.inv().as_matrix())
    close(ours.apply(vectors), theirs.apply(vectors))
    close(ours.apply(vectors, inverse=True), theirs.apply(vectors, inverse=True))
    if lead:
        weights = np.arange(1.0, 7)
        close(ours.mean().as_matrix(), theirs.mean().as_matrix())
        close(ours.mean(weights).as_matrix(), theirs.mean(weights).as_matrix())
        close(ours[1:3].as_matrix(), theirs[1:3].as_matrix())
        assert len(ours) == 6
        together = Rotation.concatenate([ours, others])
        close(together[6:].as_quat(), others.as_quat())


@pytest.mark.parametrize("seq", SEQUENCES)
def test_angles_about_axes_are_scipys(seq: str) -> None:
    ours, theirs = pair((5,))
    close(ours.as_euler(seq), theirs.as_euler(seq))
    angles = rng.uniform(-1.4, 1.4, (5, 3))
    found, wanted = (kind.from_euler(seq, angles) for kind in (Rotation, Wanted))
    close(found.as_matrix(), wanted.as_matrix())
    for locked in (0.0, np.pi / 2, -np.pi / 2, np.pi):
        theirs = Wanted.from_euler(seq, [0.3, locked, 0.4])
        with warnings.catch_warnings():
            # SciPy says that two axes coincide.
            warnings.simplefilter("ignore")
            wanted = theirs.as_euler(seq)
        close(Rotation(tnp.asarray(theirs.as_quat())).as_euler(seq), wanted, 1e-6)


def test_one_angle_and_identity() -> None:
    angles = np.array([10.0, 20.0])
    found = Rotation.from_euler("z", angles, degrees=True)
    wanted = Wanted.from_euler("z", angles[:, None], degrees=True)
    close(found.as_matrix(), wanted.as_matrix())
    np.testing.assert_array_equal(Rotation.identity(2).as_matrix(), [np.eye(3)] * 2)
    assert Rotation.identity().single


def test_between_rotations() -> None:
    ours, theirs = pair((6,))
    times = np.sort(rng.normal(size=6))
    places = np.concatenate([times, rng.uniform(times[0], times[-1], size=20)])
    between, wanted = Slerp(times, ours), WantedSlerp(times, theirs)
    close(between(places).as_matrix(), wanted(places).as_matrix())
    found = td.jit(lambda between, t: between(t).as_matrix())(between, places[7:8])
    close(found, wanted(places[7:8]).as_matrix())


def test_derivatives_where_nothing_turns() -> None:
    """The length of a vector has no derivative there; the rotation has."""
    zero = np.zeros(3)
    round_trip = td.jacobian(lambda v: Rotation.from_rotvec(v).as_rotvec())
    for v in (zero, 1e-5 * np.ones(3), 0.5 * np.ones(3)):
        close(td.jit(round_trip)(v), np.eye(3), 1e-7)
    step = 1e-6

    def turned(v: Any) -> Any:
        return Rotation.from_rotvec(v).apply(np.array([1.0, 2.0, 3.0]))

    found = td.jacobian(turned)(zero)
    moved = [(turned(step * e) - turned(-step * e)) / (2 * step) for e in np.eye(3)]
    close(found, np.stack(moved, -1), 1e-7)


@pytest.mark.slow
def test_gradients_and_vmap() -> None:
    ours, theirs = pair((4,))
    matrices = theirs.as_matrix()

    def angles(m: Any) -> Any:
        return Rotation.from_matrix(m).as_rotvec()

    close(td.vmap(angles)(matrices), ours.as_rotvec())
    slope = td.jit(td.vmap(td.jacobian(angles)))(matrices)
    generator = np.zeros((3, 3))
    generator[1, 0], generator[0, 1] = 1, -1
    # Turned a little about z, before: the vectors change as those of the products.
    along = np.einsum("nijk,njk->ni", np.asarray(slope), generator @ matrices)
    step = 1e-6
    moved = [
        (Wanted.from_rotvec([0, 0, s]) * theirs).as_rotvec() for s in (step, -step)
    ]
    close(along, (moved[0] - moved[1]) / (2 * step), 1e-6)


def test_errors_name_what_is_wrong_and_the_line() -> None:
    one = Rotation.identity()
    wrong = {
        r"quaternions have shape \(\.\.\., 4\)": lambda: Rotation.from_quat(np.ones(3)),
        r"matrices have shape \(\.\.\., 3, 3\)": lambda: Rotation.from_matrix(
            np.ones((2, 3))
        ),
        "none twice in a row, got 'xxz'": lambda: Rotation.from_euler(
            "xxz", np.ones(3)
        ),
        "angles about 'xyz' have shape": lambda: Rotation.from_euler("xyz", np.ones(2)),
        "one Rotation is no array": lambda: one[0],
        "between two rotations or more": lambda: Slerp(np.zeros(1), one),
        "Slerp goes between rotations, got 3": lambda: Slerp(np.ones(2), 3),
        r"times of shape \(3,\) for 2 rotations": lambda: Slerp(
            np.ones(3), Rotation.identity(2)
        ),
    }
    for message, call in wrong.items():
        with pytest.raises((ValueError, TypeError), match=message) as caught:
            call()
        assert f"at {__file__}:" in str(caught.value)
