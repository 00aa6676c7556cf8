"""LLVM IR of the interpreter that walks a program's command words.

Every command is a header, a template and patches, all 64-bit words::

    [0] opcode   [1] words to the next command   [2] template words (multiple of 8)
    [3] slot patches   [4] scaled patches   [5] load patches
    [6] template..., slot patches, scaled patches, load patches

The interpreter copies the template to a block on its stack and patches it, so that
many threads may run one program at once:

    slot patch    i | slot << 32           block[i] += slots[slot]
    scaled patch  i | slot << 32, scale    block[i] += slots[slot] * scale
    load patch    i | width << 32          block[i] = memory at block[i]; width 1, 4, 8

Then the opcode acts on the block; `OPCODES` lists what it expects there.

Loop indices are hidden from LLVM's loop strength reduction, as in `emit/builder.py`.
"""

from __future__ import annotations

from treadle.backends.cpu.run.executor_log_ir import LOGGING
from treadle.backends.cpu.run.repeat_ir import REPEAT
from treadle.backends.cpu.target import host

HEADER_WORDS = 6
PROGRAM_WORDS = 4
"""Words before the first command: pool, fork_join's address, size of the block, for how
many threads there is memory."""

OPCODES = {
    "end": 0,  # -
    "call": 1,  # function, then its argument block: tasks, arguments...
    "group": 2,  # calls, total; per call (end task, function, block index); blocks...
    "host": 3,  # function, arguments...
    "set": 4,  # slot, value
    "swap": 5,  # slot, slot
    "copy": 6,  # tasks, to, from, bytes
    "zero": 7,  # tasks, to, bytes
    "jump": 8,  # words from the first command
    "jump_equal": 9,  # words, a, b
    "jump_less": 10,  # words, a, b
    "shortcut": 11,  # words: jumps if the run is not profiled
    "repeat": 12,  # as `treadle.backends.cpu.run.repeat` lays it out
}
_WORK = sum(1 << OPCODES[name] for name in ("call", "group", "host", "copy", "zero"))
"""The commands that do work, as bits."""

TICKS = {
    "x86_64": ("@llvm.readcyclecounter()", "@llvm.readcyclecounter()"),
    "aarch64": (
        "@llvm.read_volatile_register.i64(metadata)",
        '@llvm.read_volatile_register.i64(metadata !{!"cntvct_el0"})',
    ),
}
"""The user-readable clock by architecture: its declaration, a call of it.

LLVM has llvm.readsteadycounter for this, but compiles it to 0 on AArch64."""


def executor_ir(profiled: bool = False) -> str:
    """A module that defines `execute`, or `execute_profiled`.

    ``i64 execute(ptr program, ptr slots)`` gives 0, or what a host function returned
    to stop the program. The second takes a zeroed array as long as the program, where
    it adds up clock ticks and executions of each command in the command's first words,
    and a log::

        [0] events that there is room for   [1] events so far, those without room too
        [2] an address on the caller's stack   [3] -
        [4] events: command, task, ticks at its begin, at its end, an address

    A command is the distance in bytes from the program's begin. One that does work has
    an event of its own, of which the task is -1; if it has several tasks, each has one
    besides. The address, on the stack of who ran the task, tells threads apart.
    """
    cases = "".join(
        f"    i64 {code}, label %{name}\n" for name, code in OPCODES.items()
    )
    text = _EXECUTE.replace("CASES", cases)
    if not profiled:
        for hole in ("  ; PROFILE ENTRY\n", "  ; PROFILE COMMAND\n"):
            text = text.replace(hole, "")
        text = text.replace("; SHORTCUT", "br label %jump")
        text = text.replace("; REPEAT", _REPEAT)
        return _HELPERS + _repeat() + text.replace(" LOG)", ")")
    # Commands are timed one by one, so loops run as commands.
    text = text.replace("; SHORTCUT", "br label %advance")
    text = text.replace("@execute(ptr %program, ptr %slots)", _PROFILED_SIGNATURE)
    text = text.replace("; PROFILE ENTRY", _PROFILE_ENTRY)
    text = text.replace("; PROFILE COMMAND", _PROFILE_COMMAND)
    text = text.replace("@dispatch(", "@dispatch_logged(")
    text = text.replace(" LOG)", ", ptr %log, i64 %distance)")
    declaration, ticks = TICKS.get(host().arch, TICKS["x86_64"])
    text = (LOGGING.replace("WORK", str(_WORK)) + text).replace("@TICKS", ticks)
    return f"{_HELPERS}{text}declare i64 {declaration}\n"


def _repeat() -> str:
    text = REPEAT
    for name in ("group", "copy", "zero"):
        text = text.replace(f"i64 {name.upper()},", f"i64 {OPCODES[name]},")
    return text


_REPEAT = "call void @repeat(ptr %program, ptr %slots, ptr %block)"

_PROFILED_SIGNATURE = """@execute_profiled(ptr %program, ptr %slots, ptr %profile,
    ptr %log)"""

_PROFILE_ENTRY = """%time_cell = alloca i64
  %record_cell = alloca ptr
  %first_time = call i64 @TICKS
  store i64 %first_time, ptr %time_cell
  %base_at = getelementptr i64, ptr %log, i64 2
  store ptr %time_cell, ptr %base_at
  store ptr %profile, ptr %record_cell"""

# Closes the record of the command before (at first: that of the program's header).
_PROFILE_COMMAND = """%now = call i64 @TICKS
  %then = load i64, ptr %time_cell
  %record = load ptr, ptr %record_cell
  %spent = sub i64 %now, %then
  %ticks0 = load i64, ptr %record
  %ticks1 = add i64 %ticks0, %spent
  store i64 %ticks1, ptr %record
  %count_at = getelementptr i64, ptr %record, i64 1
  %count0 = load i64, ptr %count_at
  %count1 = add i64 %count0, 1
  store i64 %count1, ptr %count_at
  call void @log_command(ptr %program, ptr %profile, ptr %record, ptr %log,
    i64 %then, i64 %now)
  %base_word = ptrtoint ptr %program to i64
  %here_word = ptrtoint ptr %pc to i64
  %distance = sub i64 %here_word, %base_word
  %next_record = getelementptr i8, ptr %profile, i64 %distance
  store ptr %next_record, ptr %record_cell
  store i64 %now, ptr %time_cell"""

_HELPERS = """
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)
declare i64 @llvm.usub.sat.i64(i64, i64)
declare i64 @llvm.umin.i64(i64, i64)

define internal void @dispatch(ptr %program, ptr %function, ptr %block, i64 %tasks) {
entry:
  %many = icmp sgt i64 %tasks, 1
  br i1 %many, label %parallel, label %few
few:
  %one = icmp eq i64 %tasks, 1
  br i1 %one, label %serial, label %done
serial:
  call void %function(ptr %block, i64 0, i64 0)
  br label %done
parallel:
  %pool = load ptr, ptr %program
  %fork_join_at = getelementptr i64, ptr %program, i64 1
  %fork_join = load ptr, ptr %fork_join_at
  %most_at = getelementptr i64, ptr %program, i64 3
  %most = load i64, ptr %most_at
  call void %fork_join(ptr %pool, ptr %function, ptr %block, i64 %tasks, i64 %most)
  br label %done
done:
  ret void
}

; Sets each entry's end task from the calls' own task counts; gives the total.

define internal i64 @number_tasks(ptr %block) {
entry:
  %calls = load i64, ptr %block
  br label %head
head:
  %i = phi i64 [0, %entry], [%i1, %body]
  %total = phi i64 [0, %entry], [%total1, %body]
  %more = icmp ult i64 %i, %calls
  br i1 %more, label %body, label %done
body:
  %i3 = mul i64 %i, 3
  %entry_at = add i64 %i3, 2
  %end_at = getelementptr i64, ptr %block, i64 %entry_at
  %where_at = getelementptr i64, ptr %end_at, i64 2
  %where = load i64, ptr %where_at
  %tasks_at = getelementptr i64, ptr %block, i64 %where
  %tasks = load i64, ptr %tasks_at
  %total1 = add i64 %total, %tasks
  store i64 %total1, ptr %end_at
  %i1_ = add i64 %i, 1
  %i1 = freeze i64 %i1_
  br label %head
done:
  %total_at = getelementptr i64, ptr %block, i64 1
  store i64 %total, ptr %total_at
  ret i64 %total
}

; Finds the first call whose end task is beyond %task, by bisection, and runs it.
define internal void @group_task(ptr %block, i64 %task, i64 %slot) {
entry:
  %calls = load i64, ptr %block
  br label %search
search:
  %low = phi i64 [0, %entry], [%low1, %step]
  %high = phi i64 [%calls, %entry], [%high1, %step]
  %open = icmp ult i64 %low, %high
  br i1 %open, label %step, label %found
step:
  %sum = add i64 %low, %high
  %middle = lshr i64 %sum, 1
  %m3 = mul i64 %middle, 3
  %m_at = add i64 %m3, 2
  %m_end_at = getelementptr i64, ptr %block, i64 %m_at
  %m_end = load i64, ptr %m_end_at
  %left = icmp slt i64 %task, %m_end
  %after = add i64 %middle, 1
  %low1 = select i1 %left, i64 %low, i64 %after
  %high1 = select i1 %left, i64 %middle, i64 %high
  br label %search
found:
  %i3 = mul i64 %low, 3
  %at = add i64 %i3, 2
  %end_at = getelementptr i64, ptr %block, i64 %at
  %end = load i64, ptr %end_at
  %function_at = getelementptr i64, ptr %end_at, i64 1
  %function = load ptr, ptr %function_at
  %where_at = getelementptr i64, ptr %end_at, i64 2
  %where = load i64, ptr %where_at
  %arguments = getelementptr i64, ptr %block, i64 %where
  %tasks = load i64, ptr %arguments
  %first = sub i64 %end, %tasks
  %own = sub i64 %task, %first
  call void %function(ptr %arguments, i64 %own, i64 %slot)
  ret void
}

; The part of %bytes that task %task of %tasks handles: whole cache lines.
define internal {i64, i64} @share(i64 %tasks, i64 %task, i64 %bytes) {
  %lines0 = add i64 %bytes, 63
  %lines = lshr i64 %lines0, 6
  %round = sub i64 %tasks, 1
  %up = add i64 %lines, %round
  %each = udiv i64 %up, %tasks
  %size = shl i64 %each, 6
  %start = mul i64 %task, %size
  %left = call i64 @llvm.usub.sat.i64(i64 %bytes, i64 %start)
  %length = call i64 @llvm.umin.i64(i64 %left, i64 %size)
  %r0 = insertvalue {i64, i64} undef, i64 %start, 0
  %r1 = insertvalue {i64, i64} %r0, i64 %length, 1
  ret {i64, i64} %r1
}

; A donated argument that is returned as it came is not copied.
define internal void @copy_task(ptr %block, i64 %task, i64 %slot) {
entry:
  %tasks = load i64, ptr %block
  %to_at = getelementptr i64, ptr %block, i64 1
  %to = load ptr, ptr %to_at
  %from_at = getelementptr i64, ptr %block, i64 2
  %from = load ptr, ptr %from_at
  %bytes_at = getelementptr i64, ptr %block, i64 3
  %bytes = load i64, ptr %bytes_at
  %stays = icmp eq ptr %to, %from
  br i1 %stays, label %done, label %move
move:
  %many = icmp sgt i64 %tasks, 1
  br i1 %many, label %part, label %whole
whole:
  call void @llvm.memcpy.p0.p0.i64(ptr %to, ptr %from, i64 %bytes, i1 0)
  br label %done
part:
  %share = call {i64, i64} @share(i64 %tasks, i64 %task, i64 %bytes)
  %start = extractvalue {i64, i64} %share, 0
  %length = extractvalue {i64, i64} %share, 1
  %my_to = getelementptr i8, ptr %to, i64 %start
  %my_from = getelementptr i8, ptr %from, i64 %start
  call void @llvm.memcpy.p0.p0.i64(ptr %my_to, ptr %my_from, i64 %length, i1 0)
  br label %done
done:
  ret void
}

define internal void @zero_task(ptr %block, i64 %task, i64 %slot) {
  %tasks = load i64, ptr %block
  %to_at = getelementptr i64, ptr %block, i64 1
  %to = load ptr, ptr %to_at
  %bytes_at = getelementptr i64, ptr %block, i64 2
  %bytes = load i64, ptr %bytes_at
  %share = call {i64, i64} @share(i64 %tasks, i64 %task, i64 %bytes)
  %start = extractvalue {i64, i64} %share, 0
  %length = extractvalue {i64, i64} %share, 1
  %my_to = getelementptr i8, ptr %to, i64 %start
  call void @llvm.memset.p0.i64(ptr %my_to, i8 0, i64 %length, i1 0)
  ret void
}
"""

_EXECUTE = """
define i64 @execute(ptr %program, ptr %slots) {
entry:
  %block_words_at = getelementptr i64, ptr %program, i64 2
  %block_words = load i64, ptr %block_words_at
  %block = alloca i64, i64 %block_words, align 64
  %block1 = getelementptr i64, ptr %block, i64 1
  %block2 = getelementptr i64, ptr %block, i64 2
  %commands = getelementptr i64, ptr %program, i64 4
  ; PROFILE ENTRY
  br label %command

command:
  %pc = phi ptr [%commands, %entry], [%following, %advance], [%target, %jump]
  ; PROFILE COMMAND
  %opcode = load i64, ptr %pc
  %size_at = getelementptr i64, ptr %pc, i64 1
  %size = load i64, ptr %size_at
  %following = getelementptr i64, ptr %pc, i64 %size
  %template_words_at = getelementptr i64, ptr %pc, i64 2
  %template_words = load i64, ptr %template_words_at
  %slot_patches_at = getelementptr i64, ptr %pc, i64 3
  %slot_patches = load i64, ptr %slot_patches_at
  %scaled_patches_at = getelementptr i64, ptr %pc, i64 4
  %scaled_patches = load i64, ptr %scaled_patches_at
  %load_patches_at = getelementptr i64, ptr %pc, i64 5
  %load_patches = load i64, ptr %load_patches_at
  %template = getelementptr i64, ptr %pc, i64 6
  br label %template_head

template_head:
  %t = phi i64 [0, %command], [%t1, %template_body]
  %t_more = icmp ult i64 %t, %template_words
  br i1 %t_more, label %template_body, label %slot_start
template_body:
  %t_from = getelementptr i64, ptr %template, i64 %t
  %t_to = getelementptr i64, ptr %block, i64 %t
  %words = load <8 x i64>, ptr %t_from, align 8
  store <8 x i64> %words, ptr %t_to, align 8
  %t1_ = add i64 %t, 8
  %t1 = freeze i64 %t1_
  br label %template_head

slot_start:
  %slot_list = getelementptr i64, ptr %template, i64 %template_words
  br label %slot_head
slot_head:
  %s = phi i64 [0, %slot_start], [%s1, %slot_body]
  %s_more = icmp ult i64 %s, %slot_patches
  br i1 %s_more, label %slot_body, label %scaled_start
slot_body:
  %s_at = getelementptr i64, ptr %slot_list, i64 %s
  %s_word = load i64, ptr %s_at
  %s_index = and i64 %s_word, 4294967295
  %s_slot = lshr i64 %s_word, 32
  %s_value_at = getelementptr i64, ptr %slots, i64 %s_slot
  %s_value = load i64, ptr %s_value_at
  %s_to = getelementptr i64, ptr %block, i64 %s_index
  %s_old = load i64, ptr %s_to
  %s_new = add i64 %s_old, %s_value
  store i64 %s_new, ptr %s_to
  %s1_ = add i64 %s, 1
  %s1 = freeze i64 %s1_
  br label %slot_head

scaled_start:
  %scaled_list = getelementptr i64, ptr %slot_list, i64 %slot_patches
  %scaled_words = shl i64 %scaled_patches, 1
  br label %scaled_head
scaled_head:
  %c = phi i64 [0, %scaled_start], [%c2, %scaled_body]
  %c_more = icmp ult i64 %c, %scaled_words
  br i1 %c_more, label %scaled_body, label %load_start
scaled_body:
  %c_at = getelementptr i64, ptr %scaled_list, i64 %c
  %c_word = load i64, ptr %c_at
  %c_scale_at = getelementptr i64, ptr %c_at, i64 1
  %c_scale = load i64, ptr %c_scale_at
  %c_index = and i64 %c_word, 4294967295
  %c_slot = lshr i64 %c_word, 32
  %c_value_at = getelementptr i64, ptr %slots, i64 %c_slot
  %c_value = load i64, ptr %c_value_at
  %c_product = mul i64 %c_value, %c_scale
  %c_to = getelementptr i64, ptr %block, i64 %c_index
  %c_old = load i64, ptr %c_to
  %c_new = add i64 %c_old, %c_product
  store i64 %c_new, ptr %c_to
  %c2_ = add i64 %c, 2
  %c2 = freeze i64 %c2_
  br label %scaled_head

load_start:
  %load_list = getelementptr i64, ptr %scaled_list, i64 %scaled_words
  br label %load_head
load_head:
  %l = phi i64 [0, %load_start], [%l1, %load_done]
  %l_more = icmp ult i64 %l, %load_patches
  br i1 %l_more, label %load_body, label %act
load_body:
  %l_at = getelementptr i64, ptr %load_list, i64 %l
  %l_word = load i64, ptr %l_at
  %l_index = and i64 %l_word, 4294967295
  %l_width = lshr i64 %l_word, 32
  %l_to = getelementptr i64, ptr %block, i64 %l_index
  %l_from = load ptr, ptr %l_to
  switch i64 %l_width, label %load8 [
    i64 1, label %load1
    i64 4, label %load4
  ]
load1:
  %l_byte = load i8, ptr %l_from
  %l_value1 = zext i8 %l_byte to i64
  br label %load_done
load4:
  %l_word4 = load i32, ptr %l_from, align 1
  %l_value4 = sext i32 %l_word4 to i64
  br label %load_done
load8:
  %l_value8 = load i64, ptr %l_from, align 1
  br label %load_done
load_done:
  %l_value = phi i64 [%l_value1, %load1], [%l_value4, %load4], [%l_value8, %load8]
  store i64 %l_value, ptr %l_to
  %l1_ = add i64 %l, 1
  %l1 = freeze i64 %l1_
  br label %load_head

act:
  %word0 = load i64, ptr %block
  %word1 = load i64, ptr %block1
  %word2 = load i64, ptr %block2
  switch i64 %opcode, label %end [
CASES  ]

call:
  %function = inttoptr i64 %word0 to ptr
  call void @dispatch(ptr %program, ptr %function, ptr %block1, i64 %word1 LOG)
  br label %advance
group:
  %total = call i64 @number_tasks(ptr %block)
  call void @dispatch(ptr %program, ptr @group_task, ptr %block, i64 %total LOG)
  br label %advance
host:
  %callback = inttoptr i64 %word0 to ptr
  %status = call i32 %callback(ptr %block1)
  %failed = icmp ne i32 %status, 0
  br i1 %failed, label %abort, label %advance
abort:
  %code = sext i32 %status to i64
  ret i64 %code
set:
  %set_at = getelementptr i64, ptr %slots, i64 %word0
  store i64 %word1, ptr %set_at
  br label %advance
swap:
  %a_at = getelementptr i64, ptr %slots, i64 %word0
  %b_at = getelementptr i64, ptr %slots, i64 %word1
  %a_value = load i64, ptr %a_at
  %b_value = load i64, ptr %b_at
  store i64 %b_value, ptr %a_at
  store i64 %a_value, ptr %b_at
  br label %advance
copy:
  call void @dispatch(ptr %program, ptr @copy_task, ptr %block, i64 %word0 LOG)
  br label %advance
zero:
  call void @dispatch(ptr %program, ptr @zero_task, ptr %block, i64 %word0 LOG)
  br label %advance
jump_equal:
  %equal = icmp eq i64 %word1, %word2
  br i1 %equal, label %jump, label %advance
jump_less:
  %less = icmp slt i64 %word1, %word2
  br i1 %less, label %jump, label %advance
shortcut:
  ; SHORTCUT
repeat:
  ; REPEAT
  br label %advance
jump:
  %target = getelementptr i64, ptr %commands, i64 %word0
  br label %command
advance:
  br label %command
end:
  ret i64 0
}
"""
