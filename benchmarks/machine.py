"""What this machine can do at most: `python benchmarks/machine.py`.

The rate of float32 arithmetic is that of a loop of fused multiply-adds in registers, on
all cores at once.
"""

import ctypes
import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import llvmlite.binding as llvm

SUMS = 12
"""Vectors that are summed up independently: enough to hide the latency of two units."""
ROUNDS = 5
ITERATIONS = 4_000_000


def lanes() -> int:
    """Numbers of a vector register."""
    features = llvm.get_host_cpu_features()
    if features.get("avx512f"):
        return 16
    return 8 if features.get("avx") else 4


def loop(width: int) -> str:
    """A function of n that does n times `SUMS` multiply-adds of vectors."""
    vector = f"<{width} x float>"
    function = f"@llvm.fma.v{width}f32"
    phis, sums, total = [], [], "%y0"
    for i in range(SUMS):
        phis.append(f"%x{i} = phi {vector} [ %seed, %entry ], [ %y{i}, %loop ]")
        terms = f"{vector} %x{i}, {vector} %seed, {vector} %seed"
        sums.append(f"%y{i} = call {vector} {function}({terms})")
    adds = []
    for i in range(1, SUMS):
        adds.append(f"%t{i} = fadd {vector} {total}, %y{i}")
        total = f"%t{i}"
    lines = [
        f"declare {vector} {function}({vector}, {vector}, {vector})",
        "define float @work(i64 %n, float %start) {",
        "entry:",
        f"%one = insertelement {vector} undef, float %start, i32 0",
        f"%seed = shufflevector {vector} %one, {vector} undef, "
        f"<{width} x i32> zeroinitializer",
        "br label %loop",
        "loop:",
        "%i = phi i64 [ 0, %entry ], [ %next, %loop ]",
        *phis,
        *sums,
        "%next = add i64 %i, 1",
        "%more = icmp ult i64 %next, %n",
        "br i1 %more, label %loop, label %end",
        "end:",
        *adds,
        f"%result = extractelement {vector} {total}, i32 0",
        "ret float %result",
        "}",
    ]
    return "\n".join(lines)


def flops_per_second(
    cores: int | None = None, clock: Callable[[], float] = time.perf_counter
) -> float:
    """The rate of float32 multiply-adds on so many cores, or on all that this process
    may use. A clock of CPU time sees one core alone as it is beside other work."""
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    machine = llvm.Target.from_default_triple().create_target_machine(
        cpu=llvm.get_host_cpu_name(),
        features=llvm.get_host_cpu_features().flatten(),
        opt=2,
    )
    width, cores = lanes(), cores or len(os.sched_getaffinity(0))
    with llvm.create_mcjit_compiler(llvm.parse_assembly(loop(width)), machine) as code:
        code.finalize_object()
        address = code.get_function_address("work")
        work = ctypes.CFUNCTYPE(ctypes.c_float, ctypes.c_int64, ctypes.c_float)(address)
        best = 0.0
        with ThreadPoolExecutor(cores) as pool:
            for _ in range(ROUNDS):
                start = clock()
                for call in [pool.submit(work, ITERATIONS, 0.5) for _ in range(cores)]:
                    call.result()
                seconds = clock() - start
                done = 2 * cores * ITERATIONS * SUMS * width
                best = max(best, done / seconds)
    return best


if __name__ == "__main__":
    print(f"{flops_per_second() / 1e9:.0f} GFLOP/s in float32")
