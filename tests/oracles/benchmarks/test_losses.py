"""Each program of the benchmarks, small: the losses of all libraries are alike."""

import numpy as np
import pytest

from tests.benchmarks.tiny import PROGRAMS, harness, workloads

STEPS = 3
# Relative errors: of float32 after a few steps, and of bfloat16 itself.
TOLERANCES = {"float32": 1e-3, workloads.HALF: 2e-2}


@pytest.mark.oracle
@pytest.mark.parametrize("peer", ["jax", "torch"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_losses_are_those_of(name, peer):
    program = PROGRAMS[name]
    ours, theirs = (workloads.build_step(program, who) for who in ("treadle", peer))
    tolerance = TOLERANCES[program.dtype]
    found, wanted = harness.losses(ours, STEPS), harness.losses(theirs, STEPS)
    np.testing.assert_allclose(found[0], wanted[0], rtol=tolerance / 10, atol=1e-6)
    np.testing.assert_allclose(found, wanted, rtol=tolerance)
    assert len(set(found)) == (STEPS if program.trains else 1)
    if not program.trains:
        for a, b in zip(ours.results(), theirs.results(), strict=True):
            a, b = (x.astype(np.float32) for x in (a, b))
            np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance)
