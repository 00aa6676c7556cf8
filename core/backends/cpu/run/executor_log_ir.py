"""LLVM IR that logs what a profiled program does, and when (see `executor_ir`)."""

from __future__ import annotations

LOGGING = """
define internal void @log_event(ptr %log, i64 %command, i64 %task, i64 %start,
    i64 %end, ptr %thread) {
entry:
  %count_at = getelementptr i64, ptr %log, i64 1
  %n = atomicrmw add ptr %count_at, i64 1 monotonic
  %room = load i64, ptr %log
  %fits = icmp ult i64 %n, %room
  br i1 %fits, label %write, label %done
write:
  %n5 = mul i64 %n, 5
  %at0 = add i64 %n5, 4
  %event = getelementptr i64, ptr %log, i64 %at0
  %event1 = getelementptr i64, ptr %event, i64 1
  %event2 = getelementptr i64, ptr %event, i64 2
  %event3 = getelementptr i64, ptr %event, i64 3
  %event4 = getelementptr i64, ptr %event, i64 4
  store i64 %command, ptr %event
  store i64 %task, ptr %event1
  store i64 %start, ptr %event2
  store i64 %end, ptr %event3
  store ptr %thread, ptr %event4
  br label %done
done:
  ret void
}

; The command whose record this is, if it does work. (Before the first one, the record
; is that of the program's header, whose first word is an address.)
define internal void @log_command(ptr %program, ptr %profile, ptr %record,
    ptr %log, i64 %start, i64 %end) {
entry:
  %record_word = ptrtoint ptr %record to i64
  %profile_word = ptrtoint ptr %profile to i64
  %distance = sub i64 %record_word, %profile_word
  %command = getelementptr i8, ptr %program, i64 %distance
  %opcode = load i64, ptr %command
  %known = icmp ult i64 %opcode, 64
  %shift = and i64 %opcode, 63
  %bit = lshr i64 WORK, %shift
  %works0 = trunc i64 %bit to i1
  %works = and i1 %known, %works0
  br i1 %works, label %write, label %done
write:
  call void @log_event(ptr %log, i64 %distance, i64 -1, i64 %start,
    i64 %end, ptr %log)
  br label %done
done:
  ret void
}

define internal void @timed_task(ptr %context, i64 %task, i64 %slot) {
  %here = alloca i64
  %function = load ptr, ptr %context
  %block_at = getelementptr i64, ptr %context, i64 1
  %block = load ptr, ptr %block_at
  %log_at = getelementptr i64, ptr %context, i64 2
  %log = load ptr, ptr %log_at
  %command_at = getelementptr i64, ptr %context, i64 3
  %command = load i64, ptr %command_at
  %start = call i64 @TICKS
  call void %function(ptr %block, i64 %task, i64 %slot)
  %end = call i64 @TICKS
  call void @log_event(ptr %log, i64 %command, i64 %task, i64 %start,
    i64 %end, ptr %here)
  ret void
}

define internal void @dispatch_logged(ptr %program, ptr %function, ptr %block,
    i64 %tasks, ptr %log, i64 %command) {
entry:
  %many = icmp sgt i64 %tasks, 1
  br i1 %many, label %parallel, label %few
few:
  call void @dispatch(ptr %program, ptr %function, ptr %block, i64 %tasks)
  ret void
parallel:
  %context = alloca [4 x i64]
  %block_at = getelementptr i64, ptr %context, i64 1
  %log_at = getelementptr i64, ptr %context, i64 2
  %command_at = getelementptr i64, ptr %context, i64 3
  store ptr %function, ptr %context
  store ptr %block, ptr %block_at
  store ptr %log, ptr %log_at
  store i64 %command, ptr %command_at
  call void @dispatch(ptr %program, ptr @timed_task, ptr %context, i64 %tasks)
  ret void
}
"""
