"""LLVM IR of loops whose iterations only call kernels (see `repeat`)."""

from __future__ import annotations

REPEAT = """
; Calls the entries from %first to %last: function, block index, tasks. A strand does
; one task of each, which is its own; strand -1 all of them.
define internal void @call_entries(ptr %program, ptr %block, i64 %first, i64 %last,
    i64 %strand, i64 %slot) {
entry:
  %all = icmp slt i64 %strand, 0
  br label %head
head:
  %i = phi i64 [%first, %entry], [%i1, %next]
  %more = icmp slt i64 %i, %last
  br i1 %more, label %body, label %done
body:
  %i3 = mul i64 %i, 3
  %at = add i64 %i3, 8
  %function_at = getelementptr i64, ptr %block, i64 %at
  %where_at = getelementptr i64, ptr %function_at, i64 1
  %tasks_at = getelementptr i64, ptr %function_at, i64 2
  %function = load ptr, ptr %function_at
  %where = load i64, ptr %where_at
  %tasks = load i64, ptr %tasks_at
  %arguments = getelementptr i64, ptr %block, i64 %where
  %one = icmp eq i64 %tasks, 1
  %task = select i1 %all, i64 0, i64 %strand
  %many = xor i1 %one, true
  %shared = and i1 %all, %many
  br i1 %shared, label %parallel, label %serial
serial:
  call void %function(ptr %arguments, i64 %task, i64 %slot)
  br label %next
parallel:
  call void @dispatch(ptr %program, ptr %function, ptr %arguments, i64 %tasks)
  br label %next
next:
  %i1_ = add i64 %i, 1
  %i1 = freeze i64 %i1_
  br label %head
done:
  ret void
}

; Fills in the functions of commands, and the tasks of groups.
define internal void @resolve_entries(ptr %block, i64 %calls) {
entry:
  br label %head
head:
  %i = phi i64 [0, %entry], [%i1, %next]
  %more = icmp slt i64 %i, %calls
  br i1 %more, label %body, label %done
body:
  %i3 = mul i64 %i, 3
  %at = add i64 %i3, 8
  %function_at = getelementptr i64, ptr %block, i64 %at
  %which = load i64, ptr %function_at
  switch i64 %which, label %next [
    i64 GROUP, label %group
    i64 COPY, label %copy
    i64 ZERO, label %zero
  ]
group:
  %where_at = getelementptr i64, ptr %function_at, i64 1
  %tasks_at = getelementptr i64, ptr %function_at, i64 2
  %where = load i64, ptr %where_at
  %table = getelementptr i64, ptr %block, i64 %where
  %total = call i64 @number_tasks(ptr %table)
  store i64 %total, ptr %tasks_at
  br label %found
copy:
  br label %found
zero:
  br label %found
found:
  %function = phi ptr [@group_task, %group], [@copy_task, %copy], [@zero_task, %zero]
  store ptr %function, ptr %function_at
  br label %next
next:
  %i1_ = add i64 %i, 1
  %i1 = freeze i64 %i1_
  br label %head
done:
  ret void
}

; Exchanges slots that are given in pairs: a | b << 32.
define internal void @swap_pairs(ptr %slots, ptr %pairs, i64 %count) {
entry:
  br label %head
head:
  %i = phi i64 [0, %entry], [%i1, %body]
  %more = icmp slt i64 %i, %count
  br i1 %more, label %body, label %done
body:
  %pair_at = getelementptr i64, ptr %pairs, i64 %i
  %pair = load i64, ptr %pair_at
  %a = and i64 %pair, 4294967295
  %b = lshr i64 %pair, 32
  %a_at = getelementptr i64, ptr %slots, i64 %a
  %b_at = getelementptr i64, ptr %slots, i64 %b
  %a_value = load i64, ptr %a_at
  %b_value = load i64, ptr %b_at
  store i64 %b_value, ptr %a_at
  store i64 %a_value, ptr %b_at
  %i1_ = add i64 %i, 1
  %i1 = freeze i64 %i1_
  br label %head
done:
  ret void
}

; Runs the iterations in a block that is prepared; gives how many there were.
define internal i64 @iterate(ptr %program, ptr %block, i64 %strand, i64 %slot) {
entry:
  %tests_at = getelementptr i64, ptr %block, i64 1
  %calls_at = getelementptr i64, ptr %block, i64 2
  %flag_at = getelementptr i64, ptr %block, i64 3
  %steps_at = getelementptr i64, ptr %block, i64 4
  %turns_at = getelementptr i64, ptr %block, i64 5
  %count = load i64, ptr %block
  %tests = load i64, ptr %tests_at
  %calls = load i64, ptr %calls_at
  %flag = load ptr, ptr %flag_at
  %steps = load i64, ptr %steps_at
  %turns = load i64, ptr %turns_at
  %entries = getelementptr i64, ptr %block, i64 8
  %entry_words = mul i64 %calls, 3
  %step_list = getelementptr i64, ptr %entries, i64 %entry_words
  %step_words = shl i64 %steps, 1
  %turn_list = getelementptr i64, ptr %step_list, i64 %step_words
  %turn_words = shl i64 %turns, 1
  %has_test = icmp ne i64 %tests, 0
  br label %head

head:
  %i = phi i64 [0, %entry], [%i1, %turn_head]
  %more = icmp slt i64 %i, %count
  br i1 %more, label %test, label %done
test:
  br i1 %has_test, label %ask, label %work
ask:
  call void @call_entries(ptr %program, ptr %block, i64 0, i64 %tests, i64 %strand,
    i64 %slot)
  %answer = load i8, ptr %flag
  %goes_on = icmp ne i8 %answer, 0
  br i1 %goes_on, label %work, label %done
work:
  call void @call_entries(ptr %program, ptr %block, i64 %tests, i64 %calls,
    i64 %strand, i64 %slot)
  %i1_ = add i64 %i, 1
  %i1 = freeze i64 %i1_
  br label %step_head

step_head:
  %s = phi i64 [0, %work], [%s2, %step]
  %s_more = icmp slt i64 %s, %step_words
  br i1 %s_more, label %step, label %turn_head
step:
  %s_at = getelementptr i64, ptr %step_list, i64 %s
  %s_by_at = getelementptr i64, ptr %s_at, i64 1
  %s_word = load i64, ptr %s_at
  %s_by = load i64, ptr %s_by_at
  %s_to = getelementptr i64, ptr %block, i64 %s_word
  %s_old = load i64, ptr %s_to
  %s_new = add i64 %s_old, %s_by
  store i64 %s_new, ptr %s_to
  %s2_ = add i64 %s, 2
  %s2 = freeze i64 %s2_
  br label %step_head

turn_head:
  %t = phi i64 [0, %step_head], [%t2, %turn]
  %t_more = icmp slt i64 %t, %turn_words
  br i1 %t_more, label %turn, label %head
turn:
  %t_at = getelementptr i64, ptr %turn_list, i64 %t
  %t_by_at = getelementptr i64, ptr %t_at, i64 1
  %t_word = load i64, ptr %t_at
  %t_by = load i64, ptr %t_by_at
  %t_to = getelementptr i64, ptr %block, i64 %t_word
  %t_old = load i64, ptr %t_to
  %t_new = add i64 %t_old, %t_by
  %t_back = sub i64 0, %t_by
  store i64 %t_new, ptr %t_to
  store i64 %t_back, ptr %t_by_at
  %t2_ = add i64 %t, 2
  %t2 = freeze i64 %t2_
  br label %turn_head

done:
  ret i64 %i
}

; A strand goes through all iterations with words of its own.
define internal void @strand_task(ptr %job, i64 %strand, i64 %slot) {
  %program = load ptr, ptr %job
  %block_at = getelementptr i64, ptr %job, i64 1
  %words_at = getelementptr i64, ptr %job, i64 2
  %block = load ptr, ptr %block_at
  %words = load i64, ptr %words_at
  %own = alloca i64, i64 %words, align 64
  %bytes = shl i64 %words, 3
  call void @llvm.memcpy.p0.p0.i64(ptr %own, ptr %block, i64 %bytes, i1 0)
  %ran = call i64 @iterate(ptr %program, ptr %own, i64 %strand, i64 %slot)
  ret void
}

define internal void @repeat(ptr %program, ptr %slots, ptr %block) {
entry:
  %job = alloca [3 x i64]
  %calls_at = getelementptr i64, ptr %block, i64 2
  %steps_at = getelementptr i64, ptr %block, i64 4
  %turns_at = getelementptr i64, ptr %block, i64 5
  %swaps_at = getelementptr i64, ptr %block, i64 6
  %strands_at = getelementptr i64, ptr %block, i64 7
  %count = load i64, ptr %block
  %calls = load i64, ptr %calls_at
  %steps = load i64, ptr %steps_at
  %turns = load i64, ptr %turns_at
  %swaps = load i64, ptr %swaps_at
  %packed = load i64, ptr %strands_at
  %strands = and i64 %packed, 4294967295
  %words = lshr i64 %packed, 32
  %entries = getelementptr i64, ptr %block, i64 8
  %entry_words = mul i64 %calls, 3
  %step_list = getelementptr i64, ptr %entries, i64 %entry_words
  %step_words = shl i64 %steps, 1
  %turn_list = getelementptr i64, ptr %step_list, i64 %step_words
  %turn_words = shl i64 %turns, 1
  %swap_list = getelementptr i64, ptr %turn_list, i64 %turn_words
  call void @resolve_entries(ptr %block, i64 %calls)
  br label %prepare_head

; How far the buffers lie apart that a word takes turns with.
prepare_head:
  %p = phi i64 [0, %entry], [%p2, %prepare]
  %p_more = icmp slt i64 %p, %turn_words
  br i1 %p_more, label %prepare, label %run
prepare:
  %p_at = getelementptr i64, ptr %turn_list, i64 %p
  %p_delta_at = getelementptr i64, ptr %p_at, i64 1
  %p_pair = load i64, ptr %p_delta_at
  %p_a = and i64 %p_pair, 4294967295
  %p_b = lshr i64 %p_pair, 32
  %p_a_at = getelementptr i64, ptr %slots, i64 %p_a
  %p_b_at = getelementptr i64, ptr %slots, i64 %p_b
  %p_a_value = load i64, ptr %p_a_at
  %p_b_value = load i64, ptr %p_b_at
  %p_delta = sub i64 %p_b_value, %p_a_value
  store i64 %p_delta, ptr %p_delta_at
  %p2_ = add i64 %p, 2
  %p2 = freeze i64 %p2_
  br label %prepare_head

run:
  %apart = icmp ugt i64 %strands, 1
  br i1 %apart, label %fork, label %together
together:
  %i = call i64 @iterate(ptr %program, ptr %block, i64 -1, i64 0)
  br label %done
fork:
  %job1 = getelementptr i64, ptr %job, i64 1
  %job2 = getelementptr i64, ptr %job, i64 2
  store ptr %program, ptr %job
  store ptr %block, ptr %job1
  store i64 %words, ptr %job2
  call void @dispatch(ptr %program, ptr @strand_task, ptr %job, i64 %strands)
  br label %done

; The slots are as if they had been exchanged after each iteration.
done:
  %turned = phi i64 [%i, %together], [%count, %fork]
  %odd = and i64 %turned, 1
  %is_odd = icmp eq i64 %odd, 1
  %exchanged = select i1 %is_odd, i64 %swaps, i64 0
  call void @swap_pairs(ptr %slots, ptr %swap_list, i64 %exchanged)
  ret void
}
"""
