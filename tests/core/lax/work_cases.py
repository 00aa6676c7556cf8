"""Rows for contractions, convolutions, reductions, windows and sorts."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.core.lax.cases import Case, bools, floats, ints, positive

X = floats(5, 6, 4)


def _dot(name: str, x: Any, y: Any, numbers: Any, **options: Any) -> Case:
    return Case(
        f"dot_general-{name}",
        lambda lax, x, y: lax.dot_general(x, y, numbers, **options),
        (x, y),
        close=30,
    )


DOTS = [
    _dot("plain", floats(3, 4), floats(4, 5), (((1,), (0,)), ((), ()))),
    _dot("batch", floats(2, 3, 4), floats(4, 2, 5), (((2,), (0,)), ((0,), (1,)))),
    _dot("two", floats(2, 3, 4), floats(4, 3, 5), (((2, 1), (0, 1)), ((), ()))),
    _dot("outer", floats(2, 3), floats(4), (((), ()), ((), ()))),
    _dot(
        "wide",
        ints(3, 4, dtype="int8"),
        ints(4, 2, dtype="int8"),
        (((1,), (0,)), ((), ())),
        preferred_element_type="int32",
    ),
    _dot(
        "half",
        floats(3, 4).astype("float16"),
        floats(4, 2).astype("float16"),
        (((1,), (0,)), ((), ())),
        preferred_element_type="float32",
    ),
    Case("dot", lambda lax, x, y: lax.dot(x, y), (floats(3, 4), floats(4)), close=30),
    Case(
        "batch_matmul",
        lambda lax, x, y: lax.batch_matmul(x, y),
        (floats(2, 3, 4), floats(2, 4, 5)),
        close=30,
    ),
]


def _conv(
    name: str, x: Any, w: Any, *args: Any, smooth: bool = True, **options: Any
) -> Case:
    return Case(
        f"conv-{name}",
        lambda lax, x, w: lax.conv_general_dilated(x, w, *args, **options),
        (x, w),
        smooth,
        close=60,
    )


IMAGE, FILTER = floats(2, 3, 7, 6), floats(4, 3, 3, 2)
NHWC = ("NHWC", "HWIO", "NHWC")
CONVS = [
    _conv("plain", IMAGE, FILTER, (1, 1), "VALID"),
    _conv("same", IMAGE, FILTER, (2, 1), "SAME"),
    _conv("lower", IMAGE, FILTER, (1, 2), "SAME_LOWER"),
    _conv("pairs", IMAGE, FILTER, (1, 2), [(2, -1), (0, 3)]),
    _conv("dilated", IMAGE, FILTER, (1, 1), "SAME", rhs_dilation=(2, 3)),
    _conv("apart", IMAGE, FILTER, (1, 1), [(1, 1), (2, 0)], lhs_dilation=(2, 3)),
    _conv(
        "nhwc",
        floats(2, 7, 6, 3),
        floats(3, 2, 3, 4),
        (1, 1),
        "SAME",
        dimension_numbers=NHWC,
    ),
    _conv(
        "odd",
        floats(7, 2, 3, 6),
        floats(3, 2, 3, 4),
        (1, 1),
        "SAME",
        dimension_numbers=("HNCW", "HWIO", "NCHW"),
    ),
    _conv("1d", floats(2, 3, 9), floats(4, 3, 3), (2,), "SAME"),
    _conv("0d", floats(2, 3), floats(4, 3), (), "VALID"),
    _conv("3d", floats(1, 2, 4, 4, 4), floats(3, 2, 2, 2, 2), (1, 1, 1), "VALID"),
    _conv(
        "grouped",
        floats(2, 4, 5, 5),
        floats(6, 2, 3, 3),
        (1, 1),
        "SAME",
        feature_group_count=2,
    ),
    _conv(
        "depthwise",
        floats(2, 3, 5, 5),
        floats(6, 1, 3, 3),
        (1, 1),
        "SAME",
        feature_group_count=3,
    ),
    _conv(
        "batches",
        floats(4, 3, 5, 5),
        floats(6, 3, 3, 3),
        (2, 1),
        "SAME",
        batch_group_count=2,
    ),
    _conv("int", ints(1, 2, 4, 4), ints(3, 2, 2, 2), (1, 1), "VALID"),
    _conv(
        "wide",
        IMAGE.astype("float16"),
        FILTER.astype("float16"),
        (1, 1),
        "VALID",
        preferred_element_type="float32",
        smooth=False,
    ),
    Case(
        "conv",
        lambda lax, x, w: lax.conv(x, w, (1, 2), "SAME"),
        (IMAGE, FILTER),
        close=60,
    ),
    Case(
        "conv_with_general_padding",
        lambda lax, x, w: lax.conv_with_general_padding(
            x, w, (1, 2), [(1, 0), (0, 2)], (2, 1), (1, 2)
        ),
        (IMAGE, FILTER),
        close=60,
    ),
    *[
        Case(
            f"conv_transpose-{p}-{s}-{flip}-{same}",
            lambda lax, x, w, p=p, s=s, flip=flip, same=same: lax.conv_transpose(
                x, w, (s, s), p, transpose_kernel=flip, use_consistent_padding=same
            ),
            (floats(2, 4, 5, 3), floats(3, 3, 4, 3) if flip else floats(3, 3, 3, 4)),
            close=60,
        )
        for p, s, flip, same in (
            ("SAME", 2, False, False),
            ("VALID", 2, False, False),
            ("SAME", 3, True, False),
            ([(1, 2), (0, 1)], 2, False, False),
            ([(1, 2), (0, 1)], 2, False, True),
            ("SAME", 4, False, False),
        )
    ],
    Case(
        "conv_transpose-1d",
        lambda lax, x, w: lax.conv_transpose(x, w, (2,), "VALID", rhs_dilation=(2,)),
        (floats(2, 4, 3), floats(3, 3, 4)),
        close=60,
    ),
    Case(
        "patches",
        lambda lax, x: lax.conv_general_dilated_patches(x, (2, 3), (1, 2), "SAME"),
        (IMAGE,),
        close=60,
    ),
    Case(
        "patches-nhwc",
        lambda lax, x: lax.conv_general_dilated_patches(
            x, (2, 2), (2, 2), "VALID", dimension_numbers=NHWC
        ),
        (floats(2, 6, 6, 3),),
        close=60,
    ),
]


def _pairs(better: Any) -> Any:
    """A reduction of values and their places."""

    def combine(a: Any, b: Any) -> Any:
        (x, i), (y, j) = a, b
        first = better(x, y)
        # Both libraries' arrays: one formula for either.
        return first * x + (1 - first) * y, first.astype("int32") * i + (
            1 - first.astype("int32")
        ) * j

    return combine


def _reduce(
    name: str, x: Any, init: Any, by: Any, axes: Any, smooth: bool = True
) -> Case:
    return Case(
        f"reduce-{name}",
        lambda lax, x: lax.reduce(x, init, by(lax), axes),
        (x,),
        smooth,
        close=30,
    )


F0 = np.float32
BITS = ("reduce_and", "reduce_or", "reduce_xor")
REDUCTIONS = [
    *[
        Case(
            name,
            lambda lax, x, name=name: getattr(lax, name)(x, (0, 2)),
            (positive(3, 2, 4),),
            close=60,
        )
        for name in ("reduce_sum", "reduce_prod", "reduce_max", "reduce_min")
    ],
    *[
        Case(
            name,
            lambda lax, x, name=name: getattr(lax, name)(x, (1,)),
            (ints(3, 7),),
            smooth=False,
        )
        for name in BITS
    ],
    *[
        Case(
            f"{name}-bool",
            lambda lax, x, name=name: getattr(lax, name)(x, (1,)),
            (bools(3, 7),),
            smooth=False,
        )
        for name in BITS
    ],
    _reduce("add", X, F0(0), lambda lax: lax.add, (0, 2)),
    _reduce("max", X, F0(-np.inf), lambda lax: lax.max, (1,)),
    _reduce("max-from", X, F0(0.5), lambda lax: lax.max, (1,)),
    _reduce("lambda", X, F0(0), lambda lax: lambda a, b: a + b, (0, 1, 2)),
    _reduce("none", X, F0(0), lambda lax: lax.add, ()),
    _reduce(
        "or", bools(3, 4), np.False_, lambda lax: lax.bitwise_or, (1,), smooth=False
    ),
    _reduce(
        "custom",
        floats(3, 7),
        F0(0),
        lambda lax: lambda a, b: a + b + a * b,
        (1,),
        smooth=False,
    ),
    _reduce(
        "custom-two",
        floats(3, 5, 2, low=-0.5, high=0.5),
        F0(0),
        lambda lax: lambda a, b: a + b + a * b,
        (0, 1),
        smooth=False,
    ),
    Case(
        "reduce-pairs",
        lambda lax, x, i: lax.reduce(
            (x, i),
            (F0(-9), np.int32(-1)),
            _pairs(lambda a, b: (a >= b).astype("float32")),
            (0,),
        ),
        (floats(7), ints(7)),
        smooth=False,
    ),
    Case(
        "reduce-empty",
        lambda lax, x: lax.reduce(x, F0(3), lambda a, b: a * b + a, (0,)),
        (floats(0, 2),),
        smooth=False,
    ),
    *[
        Case(
            f"{k}-{dtype}",
            lambda lax, x, k=k, dtype=dtype: getattr(lax, k)(x, 1, dtype),
            (X,),
            smooth=False,
        )
        for k in ("argmax", "argmin")
        for dtype in ("int32", "uint8")
    ],
    *[
        Case(
            f"{k}-{back}",
            lambda lax, x, k=k, back=back: getattr(lax, k)(x, axis=1, reverse=back),
            (positive(3, 4),),
            close=60,
        )
        for k in ("cumsum", "cumprod", "cummax", "cummin", "cumlogsumexp")
        for back in (False, True)
    ],
    Case("cumsum-default", lambda lax, x: lax.cumsum(x), (X,), close=60),
    Case("sort", lambda lax, x: lax.sort(x), (X,)),
    Case(
        "sort-several",
        lambda lax, k, m, v: lax.sort((k, m, v), dimension=0, num_keys=2),
        (ints(8, low=0, high=3), ints(8, low=0, high=4, dtype="uint8"), floats(8)),
    ),
    Case(
        "sort-one-key",
        lambda lax, k, v: lax.sort([k, v], num_keys=1),
        (ints(2, 8, low=0, high=3), floats(2, 8)),
    ),
    Case(
        "sort-nan",
        lambda lax, x: lax.sort(x),
        (np.array([3, np.nan, -np.inf, 1, -0.0], "float32"),),
        smooth=False,
    ),
    Case(
        "sort_key_val",
        lambda lax, k, v: lax.sort_key_val(k, v, 0),
        (ints(8, low=0, high=4), floats(8)),
    ),
    Case("top_k", lambda lax, x: lax.top_k(x, 3), (floats(2, 7),)),
    Case("top_k-axis", lambda lax, x: lax.top_k(x, 2, axis=0), (X,)),
]


def _window(
    name: str,
    x: Any,
    init: Any,
    by: Any,
    *args: Any,
    smooth: bool = True,
    **options: Any,
) -> Case:
    return Case(
        f"reduce_window-{name}",
        lambda lax, x: lax.reduce_window(x, init, by(lax), *args, **options),
        (x,),
        smooth,
        close=30,
    )


LOW = F0(-np.inf)
WINDOWS = [
    _window(
        "max-nchw", IMAGE, LOW, lambda lax: lax.max, (1, 1, 2, 2), (1, 1, 2, 2), "SAME"
    ),
    _window(
        "max-nhwc",
        floats(2, 7, 6, 3),
        LOW,
        lambda lax: lax.max,
        (1, 3, 2, 1),
        (1, 2, 1, 1),
        "SAME",
    ),
    _window(
        "min",
        IMAGE,
        F0(np.inf),
        lambda lax: lax.min,
        (1, 1, 2, 3),
        (1, 1, 1, 2),
        "VALID",
    ),
    _window(
        "sum",
        IMAGE,
        F0(0),
        lambda lax: lax.add,
        (1, 1, 2, 2),
        (1, 1, 2, 1),
        "SAME_LOWER",
    ),
    _window("sum-defaults", floats(7), F0(0), lambda lax: lax.add, (3,)),
    _window(
        "sum-channels",
        X,
        F0(0),
        lambda lax: lax.add,
        (1, 1, 3),
        None,
        [(0, 0), (0, 0), (1, 1)],
    ),
    _window(
        "sum-apart",
        IMAGE,
        F0(0),
        lambda lax: lax.add,
        (2, 1, 1, 3),
        (1, 1, 1, 1),
        "SAME",
    ),
    _window("sum-all", floats(3, 4), F0(0), lambda lax: lax.add, (3, 4)),
    _window(
        "sum-base",
        IMAGE,
        F0(0),
        lambda lax: lax.add,
        (1, 1, 3, 3),
        (1, 1, 1, 1),
        "VALID",
        base_dilation=(1, 1, 2, 3),
    ),
    _window(
        "sum-dilated",
        IMAGE,
        F0(0),
        lambda lax: lax.add,
        (1, 1, 2, 2),
        (1, 1, 1, 2),
        "SAME",
        window_dilation=(1, 1, 3, 2),
    ),
    _window(
        "max-dilated",
        IMAGE,
        LOW,
        lambda lax: lax.max,
        (1, 1, 2, 2),
        (1, 1, 1, 2),
        "VALID",
        window_dilation=(1, 1, 3, 2),
        smooth=False,
    ),
    _window(
        "int",
        ints(4, 5),
        np.int32(np.iinfo("int32").min),
        lambda lax: lax.max,
        (2, 2),
        (1, 1),
        "SAME",
        smooth=False,
    ),
    _window(
        "custom",
        floats(5, 6),
        F0(0),
        lambda lax: lambda a, b: a + b + a * b,
        (2, 3),
        (1, 2),
        "SAME",
        smooth=False,
    ),
    _window(
        "prod",
        positive(5, 6),
        F0(1),
        lambda lax: lax.mul,
        (2, 3),
        (1, 2),
        "SAME",
        smooth=False,
    ),
    Case(
        "reduce_window-pairs",
        lambda lax, x, i: lax.reduce_window(
            (x, i),
            (F0(-9), np.int32(-1)),
            _pairs(lambda a, b: (a >= b).astype("float32")),
            (3,),
            (2,),
        ),
        (floats(9), ints(9)),
        smooth=False,
    ),
]

CASES = [*DOTS, *CONVS, *REDUCTIONS, *WINDOWS]
