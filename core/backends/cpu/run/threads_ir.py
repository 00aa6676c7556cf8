"""LLVM IR of the fork-join pool.

All state is one block of 64-bit words; what different threads write lies on different
cache lines::

      0  ticket: generation << 40 | tasks << 20 | next task
      8  function   9  argument   10  the caller's CPU
     16  finished tasks
     24  generation (the word that sleepers wait on)
     32  sleeping workers
     40  stop      41  worker's spin budget   42  caller's   (clock ticks)
     48  busy      49  the most threads that work, the caller's included
     56  times a worker moved away from the caller's CPU
     64  CPUs that workers may use (1024 bits)
     80  pthread mutex   96  pthread condition (where there is no futex)

A claim is one fetch_add on the ticket. The caller claims tasks too and then waits for
finished *tasks*, never for workers: one that sleeps, is descheduled or does not exist
costs nothing but its help. A claim that comes late and lands in a newer generation is a
valid claim there, because function and argument are read after it.

Each thread that works has a number, its *slot*: 0 is the caller, workers count from 1.
A caller says for how many slots its functions have memory (`most`). If the pool has
more threads, it works alone: to be so late that it counts for another job, a claim need
not know how many may help. The number of threads grows only while there is no job.
"""

from __future__ import annotations

from treadle.backends.cpu.run.executor_ir import TICKS

POOL_WORDS = 128
MAX_TASKS = 1 << 19
"""More tasks than the ticket can number run serially."""

_FUTEX = {"x86_64": 202, "aarch64": 98}
_RELAX = {
    "x86_64": ("@llvm.x86.sse2.pause()", "@llvm.x86.sse2.pause()"),
    "aarch64": ("@llvm.aarch64.hint(i32)", "@llvm.aarch64.hint(i32 1)"),
}


def pool_ir(arch: str, sleep: str, follow_cpu: bool) -> str:
    """A module whose `pool_table` holds the addresses of `FUNCTIONS`.

    arch: "x86_64" or "aarch64".
    sleep: "futex" or "condition", how a worker waits when it is done spinning.
    follow_cpu: whether workers move away from the caller's CPU (Linux only).
    """
    relax_declaration, relax = _RELAX[arch]
    ticks_declaration, ticks = TICKS[arch]
    waiting = {"futex": _FUTEX_WAITING, "condition": _CONDITION_WAITING}[sleep]
    text = _POOL + waiting + (_MOVE if follow_cpu else _STAY)
    text = text.replace("@RELAX", relax).replace("@TICKS", ticks)
    text = text.replace("FUTEX", str(_FUTEX[arch])).replace("LIMIT", str(MAX_TASKS))
    return text + f"declare void {relax_declaration}\ndeclare i64 {ticks_declaration}\n"


FUNCTIONS = ("fork_join", "worker", "stop", "ticks", "admit")
"""What `pool_table` lists. The serial module has only the first."""

SERIAL_IR = """
@pool_table = constant [1 x ptr] [ptr @fork_join]

define internal void @fork_join(ptr %pool, ptr %function, ptr %argument, i64 %tasks,
    i64 %most) {
entry:
  br label %head
head:
  %i = phi i64 [0, %entry], [%i1, %body]
  %more = icmp slt i64 %i, %tasks
  br i1 %more, label %body, label %done
body:
  call void %function(ptr %argument, i64 %i, i64 0)
  %i1 = add i64 %i, 1
  br label %head
done:
  ret void
}
"""
"""The module for systems where neither way of sleeping exists."""

_POOL = """
@pool_table = constant [5 x ptr] [ptr @fork_join, ptr @worker, ptr @stop, ptr @ticks,
  ptr @admit]

declare i32 @sched_yield()

define internal i64 @ticks() {
  %now = call i64 @TICKS
  ret i64 %now
}

define internal void @worker(ptr %pool, i64 %slot) {
entry:
  %generation_at = getelementptr i64, ptr %pool, i64 24
  %sleepers_at = getelementptr i64, ptr %pool, i64 32
  %stop_at = getelementptr i64, ptr %pool, i64 40
  %budget_at = getelementptr i64, ptr %pool, i64 41
  br label %look

idle:
  %budget = load atomic i64, ptr %budget_at monotonic, align 8
  %since = call i64 @TICKS
  br label %spin
spin:
  %generation = load atomic i32, ptr %generation_at acquire, align 4
  %changed = icmp ne i32 %generation, %current
  br i1 %changed, label %awake, label %patience
patience:
  call void @RELAX
  %now = call i64 @TICKS
  %spent = sub i64 %now, %since
  %patient = icmp ult i64 %spent, %budget
  br i1 %patient, label %spin, label %doze
doze:
  %before = atomicrmw add ptr %sleepers_at, i32 1 seq_cst
  call void @sleep_while(ptr %pool, i32 %current)
  %after = atomicrmw sub ptr %sleepers_at, i32 1 seq_cst
  br label %awake

awake:
  call void @leave_callers_cpu(ptr %pool)
  br label %look
look:                       ; at its very start, too, a worker may find itself stopped
  %current = load atomic i32, ptr %generation_at acquire, align 4
  %stop = load atomic i32, ptr %stop_at acquire, align 4
  %stopped = icmp ne i32 %stop, 0
  br i1 %stopped, label %quit, label %help
help:
  call void @run_tasks(ptr %pool, i64 %slot)
  br label %idle
quit:
  ret void
}

; Claims and runs tasks until none is left, then reports how many it ran: one atomic
; operation a task, not two. The job cannot end, nor a new one begin, before the report.
define internal void @run_tasks(ptr %pool, i64 %slot) {
entry:
  %function_at = getelementptr i64, ptr %pool, i64 8
  %argument_at = getelementptr i64, ptr %pool, i64 9
  %finished_at = getelementptr i64, ptr %pool, i64 16
  br label %claim
claim:
  %ran = phi i64 [0, %entry], [%ran1, %work]
  %ticket = atomicrmw add ptr %pool, i64 1 acq_rel
  %task = and i64 %ticket, 1048575
  %shifted = lshr i64 %ticket, 20
  %tasks = and i64 %shifted, 1048575
  %valid = icmp ult i64 %task, %tasks
  br i1 %valid, label %work, label %drained
work:
  %function = load ptr, ptr %function_at
  %argument = load ptr, ptr %argument_at
  call void %function(ptr %argument, i64 %task, i64 %slot)
  %ran1 = add i64 %ran, 1
  br label %claim
drained:
  %any = icmp ne i64 %ran, 0
  br i1 %any, label %report, label %done
report:
  %finished = atomicrmw add ptr %finished_at, i64 %ran acq_rel
  br label %done
done:
  ret void
}

define internal void @fork_join(ptr %pool, ptr %function, ptr %argument, i64 %tasks,
    i64 %most) {
entry:
  %too_many = icmp sgt i64 %tasks, LIMIT
  br i1 %too_many, label %alone, label %try
try:
  %busy_at = getelementptr i64, ptr %pool, i64 48
  %was_busy = atomicrmw xchg ptr %busy_at, i64 1 acquire
  %busy = icmp ne i64 %was_busy, 0
  br i1 %busy, label %alone, label %count
count:
  %threads_at = getelementptr i64, ptr %pool, i64 49
  %threads = load atomic i64, ptr %threads_at monotonic, align 8
  %crowded = icmp sgt i64 %threads, %most
  br i1 %crowded, label %leave, label %publish
leave:
  store atomic i64 0, ptr %busy_at release, align 8
  br label %alone

alone:                      ; also when nested, or while another thread has the pool
  %i = phi i64 [0, %entry], [0, %try], [0, %leave], [%i1, %alone_body]
  %more = icmp slt i64 %i, %tasks
  br i1 %more, label %alone_body, label %return
alone_body:
  call void %function(ptr %argument, i64 %i, i64 0)
  %i1 = add i64 %i, 1
  br label %alone

publish:
  %generation_at = getelementptr i64, ptr %pool, i64 24
  %sleepers_at = getelementptr i64, ptr %pool, i64 32
  %function_at = getelementptr i64, ptr %pool, i64 8
  %argument_at = getelementptr i64, ptr %pool, i64 9
  %finished_at = getelementptr i64, ptr %pool, i64 16
  store ptr %function, ptr %function_at
  store ptr %argument, ptr %argument_at
  call void @publish_cpu(ptr %pool)
  store atomic i64 0, ptr %finished_at monotonic, align 8
  %old = load atomic i64, ptr %pool monotonic, align 8
  %old_generation = lshr i64 %old, 40
  %new_generation = add i64 %old_generation, 1
  %high = shl i64 %new_generation, 40
  %middle = shl i64 %tasks, 20
  %ticket = or i64 %high, %middle
  store atomic i64 %ticket, ptr %pool release, align 8
  %bumped = atomicrmw add ptr %generation_at, i32 1 seq_cst
  %sleepers = load atomic i32, ptr %sleepers_at seq_cst, align 4
  %anyone = icmp sgt i32 %sleepers, 0
  br i1 %anyone, label %rouse, label %help
rouse:
  %others = sub i64 %tasks, 1
  %wanted = trunc i64 %others to i32
  call void @wake(ptr %pool, i32 %wanted)
  br label %help
help:
  call void @run_tasks(ptr %pool, i64 0)
  %budget_at = getelementptr i64, ptr %pool, i64 42
  %budget = load atomic i64, ptr %budget_at monotonic, align 8
  %since = call i64 @TICKS
  br label %wait
wait:
  %finished = load atomic i64, ptr %finished_at acquire, align 8
  %complete = icmp eq i64 %finished, %tasks
  br i1 %complete, label %release, label %patience
patience:
  %now = call i64 @TICKS
  %spent = sub i64 %now, %since
  %patient = icmp ult i64 %spent, %budget
  br i1 %patient, label %relax, label %yield
relax:
  call void @RELAX
  br label %wait
yield:                      ; the worker may need this CPU to finish its task
  %ignored = call i32 @sched_yield()
  br label %wait
release:
  store atomic i64 0, ptr %busy_at release, align 8
  br label %return
return:
  ret void
}

; Says how many threads work from now on, between two jobs.
define internal void @admit(ptr %pool, i64 %threads) {
entry:
  %busy_at = getelementptr i64, ptr %pool, i64 48
  %threads_at = getelementptr i64, ptr %pool, i64 49
  br label %try
try:
  %was_busy = atomicrmw xchg ptr %busy_at, i64 1 acquire
  %busy = icmp ne i64 %was_busy, 0
  br i1 %busy, label %wait, label %write
wait:
  %ignored = call i32 @sched_yield()
  br label %try
write:
  store atomic i64 %threads, ptr %threads_at monotonic, align 8
  store atomic i64 0, ptr %busy_at release, align 8
  ret void
}

define internal void @stop(ptr %pool) {
  %generation_at = getelementptr i64, ptr %pool, i64 24
  %stop_at = getelementptr i64, ptr %pool, i64 40
  store atomic i32 1, ptr %stop_at seq_cst, align 4
  %bumped = atomicrmw add ptr %generation_at, i32 1 seq_cst
  call void @wake(ptr %pool, i32 2147483647)
  ret void
}
"""

_FUTEX_WAITING = """
declare i64 @syscall(i64, ...)

define internal void @sleep_while(ptr %pool, i32 %seen) {
entry:
  %generation_at = getelementptr i64, ptr %pool, i64 24
  br label %check
check:
  %generation = load atomic i32, ptr %generation_at seq_cst, align 4
  %same = icmp eq i32 %generation, %seen
  br i1 %same, label %wait, label %done
wait:                       ; FUTEX_WAIT_PRIVATE
  %status = call i64 (i64, ...) @syscall(
    i64 FUTEX, ptr %generation_at, i32 128, i32 %seen, ptr null, ptr null, i32 0)
  br label %check
done:
  ret void
}

define internal void @wake(ptr %pool, i32 %count) {
  %generation_at = getelementptr i64, ptr %pool, i64 24
  %status = call i64 (i64, ...) @syscall(
    i64 FUTEX, ptr %generation_at, i32 129, i32 %count, ptr null, ptr null, i32 0)
  ret void
}
"""

_CONDITION_WAITING = """
declare i32 @pthread_mutex_lock(ptr)
declare i32 @pthread_mutex_unlock(ptr)
declare i32 @pthread_cond_wait(ptr, ptr)
declare i32 @pthread_cond_broadcast(ptr)

define internal void @sleep_while(ptr %pool, i32 %seen) {
entry:
  %generation_at = getelementptr i64, ptr %pool, i64 24
  %mutex = getelementptr i64, ptr %pool, i64 80
  %condition = getelementptr i64, ptr %pool, i64 96
  %locked = call i32 @pthread_mutex_lock(ptr %mutex)
  br label %check
check:
  %generation = load atomic i32, ptr %generation_at seq_cst, align 4
  %same = icmp eq i32 %generation, %seen
  br i1 %same, label %wait, label %done
wait:
  %status = call i32 @pthread_cond_wait(ptr %condition, ptr %mutex)
  br label %check
done:
  %unlocked = call i32 @pthread_mutex_unlock(ptr %mutex)
  ret void
}

define internal void @wake(ptr %pool, i32 %count) {
  %mutex = getelementptr i64, ptr %pool, i64 80
  %condition = getelementptr i64, ptr %pool, i64 96
  %locked = call i32 @pthread_mutex_lock(ptr %mutex)
  %status = call i32 @pthread_cond_broadcast(ptr %condition)
  %unlocked = call i32 @pthread_mutex_unlock(ptr %mutex)
  ret void
}
"""

# With a rival process on the other CPU, Linux likes to wake a worker on the caller's
# own one, where it would only take turns with the caller.
_MOVE = """
declare i32 @sched_getcpu()
declare i32 @sched_setaffinity(i32, i64, ptr)

define internal void @publish_cpu(ptr %pool) {
  %cpu_at = getelementptr i64, ptr %pool, i64 10
  %cpu = call i32 @sched_getcpu()
  store atomic i32 %cpu, ptr %cpu_at monotonic, align 4
  ret void
}

define internal void @leave_callers_cpu(ptr %pool) {
entry:
  %cpu_at = getelementptr i64, ptr %pool, i64 10
  %callers = load atomic i32, ptr %cpu_at monotonic, align 4
  %mine = call i32 @sched_getcpu()
  %same = icmp eq i32 %callers, %mine
  %known = icmp ult i32 %mine, 1024
  %leave = and i1 %same, %known
  br i1 %leave, label %move, label %stay
move:
  %mask = alloca [16 x i64]
  %allowed_at = getelementptr i64, ptr %pool, i64 64
  %allowed = load [16 x i64], ptr %allowed_at
  store [16 x i64] %allowed, ptr %mask
  %cpu = zext i32 %mine to i64
  %word = lshr i64 %cpu, 6
  %place = and i64 %cpu, 63
  %bit = shl i64 1, %place
  %others = xor i64 %bit, -1
  %word_at = getelementptr i64, ptr %mask, i64 %word
  %old = load i64, ptr %word_at
  %new = and i64 %old, %others
  store i64 %new, ptr %word_at
  %status = call i32 @sched_setaffinity(i32 0, i64 128, ptr %mask)
  %moves_at = getelementptr i64, ptr %pool, i64 56
  %moves = atomicrmw add ptr %moves_at, i64 1 monotonic
  br label %stay
stay:
  ret void
}
"""

_STAY = """
define internal void @publish_cpu(ptr %pool) {
  ret void
}

define internal void @leave_callers_cpu(ptr %pool) {
  ret void
}
"""
