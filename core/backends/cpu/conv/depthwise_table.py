"""The tables of depthwise convolutions: of the pixels that a block sees, and of the
steps of taps and outputs in it (see `depthwise`)."""

from __future__ import annotations

from treadle.backends.cpu.conv.arguments import ConvWord, DepthwiseWord
from treadle.backends.cpu.emit.builder import Builder
from treadle.backends.cpu.gemm.arguments import Word
from treadle.backends.cpu.gemm.parts import Args, maximum, minimum, offset
from treadle.backends.cpu.gemm.tile import Machine
from treadle.backends.cpu.run.divided import COLD

_AT_ONCE = 8


def emit_steps(b: Builder, machine: Machine) -> None:
    """``steps``: what a task needs for all of its blocks: zeros, and the steps of taps
    and outputs."""
    b.declare("void @llvm.memset.p0.i64(ptr, i8, i64, i1)")
    with b.function(
        "define internal void @steps(ptr %args, ptr %zeros, ptr %taps, ptr %outputs) "
        + COLD
    ):
        args = Args(b)
        size = b.op(f"mul i64 {args(ConvWord.CHANNELS)}, {machine.operand.itemsize}")
        b(f"call void @llvm.memset.p0.i64(ptr %zeros, i8 0, i64 {size}, i1 false)")
        taps_x, block_x = args(ConvWord.TAPS_X), args(DepthwiseWord.BLOCK_X)
        _pairs(
            b,
            machine,
            "%taps",
            (args(ConvWord.TAPS_Y), taps_x),
            (args(ConvWord.DILATION_Y), args(ConvWord.DILATION_X)),
            (args(DepthwiseWord.FACTOR_Y), args(DepthwiseWord.FACTOR_X)),
        )
        pixel = args(Word.B + 3)
        _pairs(
            b,
            machine,
            "%outputs",
            (args(DepthwiseWord.BLOCK_Y), block_x),
            (args(ConvWord.STRIDE_Y), args(ConvWord.STRIDE_X)),
            (b.op(f"mul i64 {block_x}, {pixel}"), pixel),
        )
        b("ret void")


def emit_met(b: Builder) -> None:
    """``met``: copies the steps of the taps that a row of outputs meets, but for those
    above and below the image, or between its rows; gives their number, at least one
    row's, or, if it meets all, 0: nothing is copied then."""
    b.declare("void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)")
    with b.function(
        "define internal i64 @met(ptr %args, ptr %taps, ptr %target, i64 %y) noinline"
    ):
        args = Args(b)
        taps_y, taps_x = args(ConvWord.TAPS_Y), args(ConvWord.TAPS_X)
        dilation, nbytes = args(ConvWord.IN_DILATION_Y), b.op(f"mul i64 {taps_x}, 16")
        start = b.op(f"mul i64 %y, {args(ConvWord.STRIDE_Y)}")
        start = b.op(f"sub i64 {start}, {args(ConvWord.PAD_Y)}")
        end = b.op(f"sub i64 {args(ConvWord.IN_Y)}, 1")
        end = b.op(f"add i64 {b.op(f'mul i64 {end}, {dilation}')}, 1")
        last = b.op(f"sub i64 {taps_y}, 1")
        last = b.op(f"mul i64 {last}, {args(ConvWord.DILATION_Y)}")
        last = b.op(f"add i64 {start}, {last}")
        dense = b.op(f"icmp eq i64 {dilation}, 1")
        above = b.op(f"icmp sge i64 {start}, 0")
        all_met = b.op(f"and i1 {above}, {b.op(f'icmp slt i64 {last}, {end}')}")
        with b.when(b.op(f"and i1 {all_met}, {dense}")):
            b("ret i64 0")
            b.label(b.fresh_label("unreachable"))
        with b.carrying("0", taps_y, "1", [("i64", "0")]) as turn:
            position = b.op(f"mul i64 {turn.index}, {args(ConvWord.DILATION_Y)}")
            position = b.op(f"add i64 {start}, {position}")
            inside = b.op(f"icmp ult i64 {position}, {end}")
            rest = b.op(f"urem i64 {position}, {dilation}")
            inside = b.op(f"and i1 {inside}, {b.op(f'icmp eq i64 {rest}, 0')}")
            (found,) = turn.values
            source = b.op(f"mul i64 {turn.index}, {taps_x}")
            places = [
                b.op(f"getelementptr [2 x i64], ptr {base}, i64 {index}")
                for base, index in (("%target", found), ("%taps", source))
            ]
            b(
                f"call void @llvm.memcpy.p0.p0.i64(ptr {places[0]}, ptr {places[1]}, "
                f"i64 {nbytes}, i1 false)"
            )
            more = b.op(f"select i1 {inside}, i64 {taps_x}, i64 0")
            turn.next = [b.op(f"add i64 {found}, {more}")]
        # Of none, the last that was copied, which meets zeros.
        b(f"ret i64 {maximum(b, turn.values[0], taps_x)}")


def _pairs(
    b: Builder,
    machine: Machine,
    target: str,
    sizes: tuple[str, str],
    entries: tuple[str, str],
    elements: tuple[str, str],
) -> None:
    """Writes the steps of lines and columns: in entries of the table, of which a line
    has `LINE`, and in elements of the factors."""
    args = Args(b)
    line = b.op(f"mul i64 {entries[0]}, {args(DepthwiseWord.LINE)}")
    with b.loop("0", sizes[0]) as y, b.loop("0", sizes[1]) as x:
        number = b.op(f"add i64 {b.op(f'mul i64 {y}, {sizes[1]}')}, {x}")
        pair = b.op(f"getelementptr [2 x i64], ptr {target}, i64 {number}")
        steps = ((line, entries[1], 8), (*elements, machine.operand.itemsize))
        for i, (down, right, size) in enumerate(steps):
            step = b.op(f"mul i64 {y}, {down}")
            step = b.op(f"add i64 {step}, {b.op(f'mul i64 {x}, {right}')}")
            slot = b.op(f"getelementptr i64, ptr {pair}, i64 {i}")
            b(f"store i64 {b.op(f'mul i64 {step}, {size}')}, ptr {slot}, align 8")


def emit_table(b: Builder, machine: Machine) -> None:
    """``table``: the addresses of the pixels that `rows` rows of outputs see, from y0
    and x0 on."""
    with b.function(
        "define internal void @table(ptr %args, ptr %table, ptr %zeros, ptr %image, "
        "i64 %y0, i64 %rows, i64 %x0)"
    ):
        args = Args(b)
        line, dilation = args(DepthwiseWord.LINE), args(ConvWord.IN_DILATION_Y)
        start = b.op(f"mul i64 %y0, {args(ConvWord.STRIDE_Y)}")
        start = b.op(f"sub i64 {start}, {args(ConvWord.PAD_Y)}")
        lines = b.op(f"mul i64 {b.op('sub i64 %rows, 1')}, {args(ConvWord.STRIDE_Y)}")
        reach = b.op(f"sub i64 {args(ConvWord.TAPS_Y)}, 1")
        reach = b.op(f"mul i64 {reach}, {args(ConvWord.DILATION_Y)}")
        lines = b.op(f"add i64 {b.op(f'add i64 {lines}, {reach}')}, 1")
        left = b.op(f"mul i64 %x0, {args(ConvWord.STRIDE_X)}")
        left = b.op(f"sub i64 {left}, {args(ConvWord.PAD_X)}")
        spread = args(ConvWord.IN_DILATION_X)
        first, stop, head, tail = _columns(b, args, left, line)
        step = b.op(f"mul i64 {args(Word.A + 3)}, {machine.operand.itemsize}")
        size = args(ConvWord.IN_Y)
        with b.loop("0", lines) as row:
            target = b.op(f"mul i64 {row}, {line}")
            target = b.op(f"getelementptr ptr, ptr %table, i64 {target}")
            position = b.op(f"add i64 {start}, {row}")
            y = b.op(f"sdiv i64 {position}, {dilation}")
            gap = b.op(f"icmp ne i64 {b.op(f'srem i64 {position}, {dilation}')}, 0")
            before = b.op(f"icmp slt i64 {position}, 0")
            beyond = b.op(f"icmp sge i64 {y}, {size}")
            outside = b.op(f"or i1 {b.op(f'or i1 {before}, {beyond}')}, {gap}")
            limits = (
                b.op(f"select i1 {outside}, i64 {there}, i64 {inside}")
                for there, inside in ((line, head), (line, tail), ("0", stop))
            )
            head_here, tail_here, stop_here = limits
            _zeros(b, target, "0", head_here)
            pixels = offset(b, machine.operand, "%image", y, args(Word.A + 2))
            place = b.op(f"sub i64 {b.op(f'mul i64 {first}, {spread}')}, {left}")
            slot = b.op(f"getelementptr ptr, ptr {target}, i64 {place}")
            pixel = b.op(f"mul i64 {first}, {step}")
            pixel = b.op(f"getelementptr i8, ptr {pixels}, i64 {pixel}")
            count = maximum(b, b.op(f"sub i64 {stop_here}, {first}"), "0")
            _addresses(b, (slot, spread), (pixel, step), count)
            _zeros(b, target, tail_here, line)
        b("ret void")


def _addresses(
    b: Builder, slots: tuple[str, str], pixels: tuple[str, str], count: str
) -> None:
    """Writes so many addresses, `_AT_ONCE` of them by one instruction if they stand
    side by side: where channels are few, they are a tenth of all work.

    slots: the first, and the step in entries. pixels: the first, and the step in bytes.
    """
    (slot, spread), (pixel, step) = slots, pixels
    words = f"<{_AT_ONCE} x i64>"

    def splat(value: str) -> str:
        one = b.op(f"insertelement {words} poison, i64 {value}, i64 0")
        zeros = f"<{_AT_ONCE} x i32> zeroinitializer"
        return b.op(f"shufflevector {words} {one}, {words} poison, {zeros}")

    dense = b.op(f"icmp eq i64 {spread}, 1")
    whole = b.op(f"and i64 {count}, {-_AT_ONCE}")
    whole = b.op(f"select i1 {dense}, i64 {whole}, i64 0")
    numbers = ", ".join(f"i64 {i}" for i in range(_AT_ONCE))
    steps = b.op(f"mul {words} {splat(step)}, <{numbers}>")
    start = splat(b.op(f"ptrtoint ptr {pixel} to i64"))
    start = b.op(f"add {words} {start}, {steps}")
    further = splat(b.op(f"mul i64 {step}, {_AT_ONCE}"))
    with b.carrying("0", whole, str(_AT_ONCE), [(words, start)]) as turn:
        place = b.op(f"getelementptr ptr, ptr {slot}, i64 {turn.index}")
        b(f"store {words} {turn.values[0]}, ptr {place}, align 8")
        turn.next = [b.op(f"add {words} {turn.values[0]}, {further}")]
    with b.loop(whole, count) as i:
        place = b.op(f"mul i64 {i}, {spread}")
        place = b.op(f"getelementptr ptr, ptr {slot}, i64 {place}")
        address = b.op(f"mul i64 {i}, {step}")
        address = b.op(f"getelementptr i8, ptr {pixel}, i64 {address}")
        b(f"store ptr {address}, ptr {place}, align 8")


def _zeros(b: Builder, line: str, first: str, stop: str) -> None:
    with b.loop(first, stop) as place:
        slot = b.op(f"getelementptr ptr, ptr {line}, i64 {place}")
        b(f"store ptr %zeros, ptr {slot}, align 8")


def _columns(
    b: Builder, args: Args, start: str, line: str
) -> tuple[str, str, str, str]:
    """The input columns first..stop-1 that are in a line of the table, which begins at
    position `start`; where zeros before them end, and where those behind them begin."""
    dilation = args(ConvWord.IN_DILATION_X)
    raised = b.op(f"add i64 {start}, {b.op(f'sub i64 {dilation}, 1')}")
    first = maximum(b, "0", b.op(f"sdiv i64 {raised}, {dilation}"))
    end = b.op(f"add i64 {b.op(f'add i64 {start}, {line}')}, {dilation}")
    stop = b.op(f"sdiv i64 {b.op(f'sub i64 {end}, 1')}, {dilation}")
    stop = minimum(b, stop, args(ConvWord.IN_X))
    stop = maximum(b, stop, first)
    none = b.op(f"icmp eq i64 {first}, {stop}")
    # With gaps between them all are zeros at first.
    gaps = b.op(f"icmp ne i64 {dilation}, 1")
    all_first = b.op(f"or i1 {none}, {gaps}")
    head, tail = (b.op(f"sub i64 {x}, {start}") for x in (first, stop))
    head, tail = (
        b.op(f"select i1 {all_first}, i64 {line}, i64 {x}") for x in (head, tail)
    )
    return first, stop, head, tail
