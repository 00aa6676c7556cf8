"""Special functions, and where they are tried: on SciPy's functions in float64."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.special

import treadle as td

inf, nan = np.inf, np.nan


@dataclass(frozen=True)
class Case:
    """One function.

    points: columns of arguments, where its values are compared.
    smooth: columns where derivatives are compared, by the arguments in `moving`.
    oracle: if not SciPy's function of the same name.
    tolerance, single: of values in float64 and in float32.
    slow: whether derivatives are compared with the slow tests.
    """

    name: str
    points: tuple[Any, ...]
    smooth: tuple[Any, ...] = ()
    moving: tuple[int, ...] = (0,)
    oracle: Callable[..., Any] | None = None
    tolerance: float = 2e-13
    single: float = 1e-5
    label: str = ""
    slow: bool = False

    @property
    def function(self) -> Callable[..., Any]:
        return getattr(td.scipy.special, self.name)

    def wanted(self, *args: Any) -> Any:
        with np.errstate(all="ignore"):
            return (self.oracle or getattr(scipy.special, self.name))(*args)


def grid(*axes: Any) -> tuple[np.ndarray, ...]:
    """All combinations of some numbers, as columns."""
    return tuple([x.ravel() for x in np.meshgrid(*axes, indexing="ij")])


REAL = [0.0, 1e-8, 0.1, 0.37, 0.5, 1.0, 1.5, 2.0, 2.5, 4.0, 5.5, 8.5, 20.0, 30.0]
BOTH = np.array([*REAL, *[-x for x in REAL], inf, -inf, nan])
POSITIVE = np.array([*REAL, 1e3, nan])
UNIT = np.array([0.0, 1e-30, 1e-10, 0.01, 0.3, 0.5, 0.77, 0.99, 1 - 1e-9, 1.0, nan])
SMOOTH = (np.array([-3.3, -1.2, -0.4, 0.3, 0.9, 2.2, 6.1]),)
ABOVE = (np.array([0.2, 0.7, 1.4, 3.3, 9.0]),)
SHAPES = np.array([1e-3, 0.3, 1.0, 2.5, 12.0, 150.0, 2e4])

ONE = [
    *[
        Case(name, (BOTH,), SMOOTH)
        for name in ("expit", "erf", "erfc", "erfcx", "dawsn", "ndtr", "i0e")
    ],
    Case("i1e", (BOTH,), SMOOTH),
    *[Case(name, (BOTH[:-3],), SMOOTH) for name in ("i0", "i1")],
    Case("expi", (BOTH,), SMOOTH, single=3e-4),
    Case("log_ndtr", (BOTH,), SMOOTH, tolerance=1e-13, single=1e-6),
    *[
        Case(name, (UNIT,), (np.array([0.01, 0.2, 0.5, 0.9, 0.99]),))
        for name in ("logit", "ndtri")
    ],
    Case("erfinv", (UNIT[[0, 1, 2, 3, 5, 7, 9, 10]],), (np.array([-0.9, -0.1, 0.5]),)),
    Case("entr", (np.array([0.0, -1.0, 0.5, 3.0, inf, nan]),), ABOVE),
    Case("exp1", (POSITIVE,), ABOVE),
    Case("spence", (np.array([*REAL, 1e3, -1.0, nan]),), ABOVE),
    Case("gammaln", (np.array([0.5, 1.0, 2.0, 30.0, -0.5, 0.0, -1.0, inf]),), SMOOTH),
    Case("loggamma", (np.array([0.5, 1.0, 2.0, 30.0, inf]),), ABOVE),
    Case(
        "digamma",
        (np.array([0.5, 1.0, 30.0, -0.5, inf]),),
        SMOOTH,
        tolerance=1e-12,
        single=2e-5,
    ),
    Case("gammasgn", (np.array([0.0, -0.0, 1.0, -0.5, -1.5, -2.0, -7.2, inf]),)),
    Case(
        "gamma",
        (np.array([0.0, -0.0, 0.5, 1.0, 5.0, 30.0, -0.5, -1.5, -2.0, inf, -inf, nan]),),
        SMOOTH,
        single=5e-5,
    ),
    Case("factorial", (np.array([-1.0, 0, 1, 2.5, 10.0, 25.0]),), ABOVE, single=5e-5),
    *[
        Case(
            "fresnel",
            (np.array([*BOTH[:-1], 1e3]),),
            SMOOTH,
            oracle=lambda x, i=i: scipy.special.fresnel(x)[i],
            label=str(i),
            single=2e-4,
        )
        for i in (0, 1)
    ],
    *[
        Case(
            "sici",
            (BOTH,) if not i else (POSITIVE,),
            SMOOTH if not i else ABOVE,
            oracle=lambda x, i=i: scipy.special.sici(x)[i],
            label=str(i),
        )
        for i in (0, 1)
    ],
]

WEIGHTS = [0.0, 0.5, -1.5, nan]
SEVERAL = [
    Case("xlogy", grid(WEIGHTS, [0.0, 1e-5, 2.0, -1.0, inf, nan])),
    Case("xlogy", (), grid([0.0, 0.7, -2.0], [0.3, 4.0]), (0, 1), label="slopes"),
    Case("xlog1py", grid(WEIGHTS, [-1.0, 0.0, 1e-9, 2.0, -2.0, inf, nan])),
    Case("xlog1py", (), grid([0.0, 0.7, -2.0], [-0.3, 4.0]), (0, 1), label="slopes"),
    *[
        Case(
            name,
            grid([0.0, 0.5, 3.0, -1.0, nan], [0.0, 0.2, 2.0, -1.0, nan]),
            grid([0.5, 3.0], [0.2, 2.0]),
            (0, 1),
        )
        for name in ("rel_entr", "kl_div")
    ],
    *[
        Case(
            name,
            grid([0.0, 1e-9, 0.5, 3.0], [-1.0, 0.0, 1e-7, 0.5, 2.0]),
            grid([0.5, 3.0], [-1.0, 0.0, 2.0]),
            (0, 1),
        )
        for name in ("boxcox", "boxcox1p")
    ],
    Case(
        "owens_t",
        grid([0.0, 0.1, 1.0, 5.0, 20.0, -2.0], [0.0, 0.2, 0.99, 1.0, 3.0, 1e3, -0.5]),
        grid([0.3, 1.5, -2.0], [0.2, 0.9, 1.4]),
        (0, 1),
        tolerance=1e-12,
        slow=True,
    ),
    Case(
        "expn",
        grid([0.0, 1.0, 2.0, 5.0, 30.0], [0.0, 1e-5, 0.5, 1.0, 1.01, 3.0, 40.0, inf]),
        grid([0.0, 1.0, 2.0, 5.0], [0.2, 0.9, 1.5, 7.0]),
        (1,),
        single=2e-5,
    ),
    Case(
        "betaln",
        grid(SHAPES, SHAPES),
        grid([0.3, 2.0, 14.0], [0.8, 20.0]),
        (0, 1),
        # SciPy's has no more digits.
        tolerance=2e-11,
        single=2e-5,
    ),
    Case(
        "beta",
        grid([0.3, 2.0, 14.0], [0.5, 3.0, 20.0]),
        grid([0.3, 2.0, 14.0], [0.8, 20.0]),
        (0, 1),
        single=5e-5,
        slow=True,
    ),
    Case(
        "poch",
        grid([0.5, 3.0, 10.0], [0.0, 0.5, 2.0, 5.0]),
        grid([0.5, 3.0], [0.5, 2.0]),
        (0, 1),
        single=5e-5,
        slow=True,
    ),
    Case(
        "comb",
        grid([0.0, 5.0, 12.5, 40.0], [-1.0, 0.0, 2.0, 5.0, 13.0]),
        grid([5.0, 12.5], [1.5, 3.0]),
        (0, 1),
        single=1e-4,
        slow=True,
    ),
    Case(
        "zeta",
        grid([0.5, 1.0, 1.2, 2.0, 7.0, 40.0], [1e-3, 0.5, 1.0, 30.0, 0.0]),
        grid([1.2, 2.0, 7.0], [0.5, 1.0, 30.0]),
        (1,),
        single=2e-5,
    ),
    *[
        Case(
            name,
            grid([0.0, *SHAPES], [0.0, 1e-3, 0.5, 2.0, 11.0, 140.0, 2.01e4, inf]),
            grid([0.3, 2.5, 12.0], [0.5, 3.0, 14.0]),
            (0, 1),
            tolerance=2e-12,
            single=1e-3,
            slow=name == "gammaincc",
        )
        for name in ("gammainc", "gammaincc")
    ],
    Case(
        "betainc",
        grid(SHAPES[1:6], SHAPES[1:6], [0.0, 1e-4, 0.2, 0.5, 0.9, 0.9999, 1.0]),
        grid([0.5, 3.0, 12.0], [0.7, 9.0], [0.2, 0.6]),
        (0, 1, 2),
        tolerance=2e-12,
        single=1e-4,
        slow=True,
    ),
    Case(
        "hyp1f1",
        grid([0.5, 2.0, -1.5], [1.5, 4.0], [-30.0, -2.0, 0.0, 0.5, 5.0, 40.0]),
        grid([0.5, 2.0], [1.5, 4.0], [-2.0, 0.5, 5.0]),
        (0, 1, 2),
        tolerance=1e-11,
        single=1e-4,
        slow=True,
    ),
    Case(
        "hyp2f1",
        grid([0.5, 2.0, -3.0], [1.2, 3.1], [2.6], [-20.0, -0.5, 0.0, 0.3, 0.8, 0.97]),
        grid([0.5, 2.0], [1.2], [2.6], [-2.0, 0.3, 0.8]),
        (0, 1, 2, 3),
        tolerance=1e-10,
        single=2e-3,
        slow=True,
    ),
]
CASES = [*ONE, *SEVERAL]
