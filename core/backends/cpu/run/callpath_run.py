"""LLVM IR of running a program and of building its result: see `callpath_ir`."""

RUN = """
; A new Buffer for what the words at %spec describe: from the free list of its size, or
; with fresh memory. Null with an error set.
define internal ptr @buffer(ptr %header, ptr %spec) {
  %free = load ptr, ptr %spec
  %count = call i64 @PyList_Size(ptr %free)
  %some = icmp sgt i64 %count, 0
  br i1 %some, label %pop, label %make
pop:
  %last = sub i64 %count, 1
  %idle = call ptr @PyList_GetItem(ptr %free, i64 %last)
  call void @Py_IncRef(ptr %idle)
  %popped = call i32 @PyList_SetSlice(ptr %free, i64 %last, i64 %count, ptr null)
  br label %wrap
make:
  %new_block = call ptr @word(ptr %spec, i64 1)
  %fresh = call ptr @call0(ptr %new_block)
  %no_memory = icmp eq ptr %fresh, null
  br i1 %no_memory, label %failed, label %wrap
wrap:
  %block = phi ptr [%idle, %pop], [%fresh, %make]
  %kind = call ptr @word(ptr %header, i64 $buffer$)
  %made = call ptr @PyType_GenericAlloc(ptr %kind, i64 0)
  %unmade = icmp eq ptr %made, null
  br i1 %unmade, label %drop, label %fill
drop:
  call void @Py_DecRef(ptr %block)
  br label %failed
failed:
  ret ptr null
fill:
  %address = call ptr @PyTuple_GetItem(ptr %block, i64 0)
  %nbytes = call ptr @word(ptr %spec, i64 2)
  %class = call ptr @word(ptr %spec, i64 3)
  call void @put(ptr %header, i64 $buffer_address$, ptr %made, ptr %address)
  call void @put(ptr %header, i64 $buffer_nbytes$, ptr %made, ptr %nbytes)
  call void @put(ptr %header, i64 $buffer_class$, ptr %made, ptr %class)
  call void @put(ptr %header, i64 $buffer_block$, ptr %made, ptr %block)
  call void @Py_DecRef(ptr %block)
  ret ptr %made
}

; Fills a slot that is empty, or whose reference somebody else has taken over.
define internal void @put(ptr %header, i64 %place, ptr %object, ptr %value) {
  call void @Py_IncRef(ptr %value)
  %offset = call i64 @number(ptr %header, i64 %place)
  %at = getelementptr i8, ptr %object, i64 %offset
  store ptr %value, ptr %at
  ret void
}

; A new Array on a Buffer, which it takes over. Null with an error set.
define internal ptr @array(ptr %header, ptr %spec, ptr %buffer) {
  %kind = call ptr @word(ptr %header, i64 $array$)
  %made = call ptr @PyType_GenericAlloc(ptr %kind, i64 0)
  %failed = icmp eq ptr %made, null
  br i1 %failed, label %done, label %fill
fill:
  %address = call ptr @slot(ptr %header, i64 $buffer_address$, ptr %buffer)
  %none = call ptr @word(ptr %header, i64 $none$)
  %type = call ptr @word(ptr %spec, i64 4)
  call void @put(ptr %header, i64 $array_address$, ptr %made, ptr %address)
  call void @put(ptr %header, i64 $array_view$, ptr %made, ptr %none)
  call void @put(ptr %header, i64 $array_type$, ptr %made, ptr %type)
  call void @put(ptr %header, i64 $array_buffer$, ptr %made, ptr %buffer)
  br label %done
done:
  call void @Py_DecRef(ptr %buffer)
  ret ptr %made
}

; Takes what a donated Array has out of it: its buffer goes to place %to of the frame's
; list, its view behind it. 1 if the memory may become a result's: if no view was ever
; made, and the Array is not among those given up already.
define internal i1 @give_up(ptr %header, ptr %held, i64 %to, ptr %array) {
  %marker = call ptr @word(ptr %header, i64 $marker$)
  %none = call ptr @word(ptr %header, i64 $none$)
  %zero = call ptr @word(ptr %header, i64 $zero$)
  %buffer = call ptr @slot(ptr %header, i64 $array_buffer$, ptr %array)
  %view = call ptr @slot(ptr %header, i64 $array_view$, ptr %array)
  %number = call ptr @slot(ptr %header, i64 $array_address$, ptr %array)
  call void @put(ptr %header, i64 $array_view$, ptr %array, ptr %marker)
  call void @put(ptr %header, i64 $array_buffer$, ptr %array, ptr %none)
  call void @put(ptr %header, i64 $array_address$, ptr %array, ptr %zero)
  %kept = call i32 @PyList_SetItem(ptr %held, i64 %to, ptr %buffer)
  %behind = add i64 %to, 1
  %kept_view = call i32 @PyList_SetItem(ptr %held, i64 %behind, ptr %view)
  call void @Py_DecRef(ptr %number)
  %again = icmp eq ptr %view, %marker
  %new = xor i1 %again, true
  ret i1 %new
}

; Gives up the donated leaves; the list of what they held, or null with an error set. In
; the frame's [4] is then whether all of them came once: only then results take memory.
define internal ptr @give_up_all(ptr %frame) {
begin:
  %header = load ptr, ptr %frame
  %count = call i64 @number(ptr %header, i64 $donated_count$)
  %length = shl i64 %count, 1
  %held = call ptr @PyList_New(i64 %length)
  %leaves = call ptr @word(ptr %frame, i64 1)
  %all = call i64 @number(ptr %frame, i64 2)
  %place = call i64 @number(ptr %header, i64 $donated$)
  %places = getelementptr i64, ptr %header, i64 %place
  %marker = call ptr @word(ptr %header, i64 $marker$)
  %once_at = getelementptr i64, ptr %frame, i64 4
  store i64 1, ptr %once_at
  %failed = icmp eq ptr %held, null
  %nothing = icmp eq i64 %count, 0
  %over = or i1 %failed, %nothing
  br i1 %over, label %done, label %head
head:
  %i = phi i64 [0, %begin], [%next_i, %next]
  %more = icmp ult i64 %i, %count
  br i1 %more, label %one, label %look
one:
  %index = call i64 @number(ptr %places, i64 %i)
  %leaf = call ptr @PyList_GetItem(ptr %leaves, i64 %index)
  %to = shl i64 %i, 1
  %new = call i1 @give_up(ptr %header, ptr %held, i64 %to, ptr %leaf)
  %next_i = add i64 %i, 1
  br i1 %new, label %next, label %twice
twice:
  store i64 0, ptr %once_at
  br label %next
next:
  br label %head
look:
  ; An Array that is also passed where it is not donated is marked, too: as many leaves
  ; must be marked as were given up.
  %j = phi i64 [0, %head], [%next_j, %look_one]
  %marked = phi i64 [0, %head], [%now_marked, %look_one]
  %left = icmp ult i64 %j, %all
  br i1 %left, label %look_one, label %count_marked
look_one:
  %other = call ptr @PyList_GetItem(ptr %leaves, i64 %j)
  %view = call ptr @slot(ptr %header, i64 $array_view$, ptr %other)
  %is_marked = icmp eq ptr %view, %marker
  %one_more = zext i1 %is_marked to i64
  %now_marked = add i64 %marked, %one_more
  %next_j = add i64 %j, 1
  br label %look
count_marked:
  %right = icmp eq i64 %marked, %count
  br i1 %right, label %done, label %elsewhere
elsewhere:
  store i64 0, ptr %once_at
  br label %done
done:
  ret ptr %held
}

; The buffer that a result takes over from a donated argument, or null.
define internal ptr @taken(ptr %frame, ptr %spec) {
  %header = load ptr, ptr %frame
  %share = call i64 @number(ptr %spec, i64 5)
  %shares = icmp sge i64 %share, 0
  %once = call i64 @number(ptr %frame, i64 4)
  %all_once = icmp eq i64 %once, 1
  %may = and i1 %shares, %all_once
  br i1 %may, label %look, label %no
look:
  %held = call ptr @word(ptr %frame, i64 5)
  %at = shl i64 %share, 1
  %behind = add i64 %at, 1
  %buffer = call ptr @PyList_GetItem(ptr %held, i64 %at)
  %view = call ptr @PyList_GetItem(ptr %held, i64 %behind)
  %none = call ptr @word(ptr %header, i64 $none$)
  %unseen = icmp eq ptr %view, %none
  br i1 %unseen, label %take, label %no
take:
  call void @Py_IncRef(ptr %buffer)
  ret ptr %buffer
no:
  ret ptr null
}

; Makes the results and writes their addresses to %words. 1 if all is well.
define internal i1 @outputs(ptr %frame, ptr %outs, ptr %words) {
begin:
  %header = load ptr, ptr %frame
  %count = call i64 @number(ptr %header, i64 $output_count$)
  %place = call i64 @number(ptr %header, i64 $outputs$)
  %start = getelementptr i64, ptr %header, i64 %place
  br label %head
head:
  %i = phi i64 [0, %begin], [%next_i, %store]
  %spec = phi ptr [%start, %begin], [%next_spec, %store]
  %more = icmp ult i64 %i, %count
  br i1 %more, label %one, label %done
one:
  %taken = call ptr @taken(ptr %frame, ptr %spec)
  %is_taken = icmp ne ptr %taken, null
  br i1 %is_taken, label %wrap, label %allocate
allocate:
  %new = call ptr @buffer(ptr %header, ptr %spec)
  %no_buffer = icmp eq ptr %new, null
  br i1 %no_buffer, label %failed, label %wrap
wrap:
  %buffer = phi ptr [%taken, %one], [%new, %allocate]
  %number = call ptr @slot(ptr %header, i64 $buffer_address$, ptr %buffer)
  %address = call ptr @PyLong_AsVoidPtr(ptr %number)
  %array = call ptr @array(ptr %header, ptr %spec, ptr %buffer)
  %no_array = icmp eq ptr %array, null
  br i1 %no_array, label %failed, label %store
store:
  %kept = call i32 @PyList_SetItem(ptr %outs, i64 %i, ptr %array)
  %to = getelementptr ptr, ptr %words, i64 %i
  store ptr %address, ptr %to
  %next_i = add i64 %i, 1
  %next_spec = getelementptr i64, ptr %spec, i64 OUTPUT_WORDS
  br label %head
done:
  ret i1 true
failed:
  ret i1 false
}

; Starts the pool's threads if they have to be. 1 if all is well.
define internal i1 @awake(ptr %header) {
  %pool = call ptr @word(ptr %header, i64 $pool$)
  %name = call ptr @word(ptr %header, i64 $needs_start$)
  %flag = call ptr @PyObject_GetAttr(ptr %pool, ptr %name)
  %unknown = icmp eq ptr %flag, null
  br i1 %unknown, label %failed, label %look
look:
  call void @Py_DecRef(ptr %flag)
  %false = call ptr @word(ptr %header, i64 $false$)
  %runs = icmp eq ptr %flag, %false
  br i1 %runs, label %good, label %start
start:
  %function = call ptr @word(ptr %header, i64 $start$)
  %done = call ptr @call0(ptr %function)
  %error = icmp eq ptr %done, null
  br i1 %error, label %failed, label %started
started:
  call void @Py_DecRef(ptr %done)
  br label %good
good:
  ret i1 true
failed:
  ret i1 false
}

declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)

define internal void @copy(ptr %to, ptr %from, i64 %words) {
  %bytes = shl i64 %words, 3
  call void @llvm.memcpy.p0.p0.i64(ptr %to, ptr %from, i64 %bytes, i1 false)
  ret void
}

; Runs the program on the frame's leaves; gives the list of results, or null with an
; error set. Its words are those of `Executable`: arena, leaves, results, constants.
define internal ptr @run(ptr %frame) {
  %header = load ptr, ptr %frame
  %awake = call i1 @awake(ptr %header)
  br i1 %awake, label %begin, label %failed
begin:
  %arena_place = call i64 @number(ptr %header, i64 $arena$)
  %arena_spec = getelementptr i64, ptr %header, i64 %arena_place
  %arena = call ptr @buffer(ptr %header, ptr %arena_spec)
  %no_arena = icmp eq ptr %arena, null
  br i1 %no_arena, label %failed, label %donate
donate:
  %held = call ptr @give_up_all(ptr %frame)
  %held_at = getelementptr ptr, ptr %frame, i64 5
  store ptr %held, ptr %held_at
  %no_held = icmp eq ptr %held, null
  br i1 %no_held, label %drop_arena, label %list
list:
  %out_count = call i64 @number(ptr %header, i64 $output_count$)
  %outs = call ptr @PyList_New(i64 %out_count)
  %no_list = icmp eq ptr %outs, null
  br i1 %no_list, label %drop_held, label %fill
fill:
  %number = call ptr @slot(ptr %header, i64 $buffer_address$, ptr %arena)
  %base = call ptr @PyLong_AsVoidPtr(ptr %number)
  %slots = call i64 @number(ptr %header, i64 $slots$)
  %words = getelementptr i8, ptr %base, i64 %slots
  store ptr %base, ptr %words
  %count = call i64 @number(ptr %frame, i64 2)
  %addresses = call ptr @word(ptr %frame, i64 3)
  %in_words = getelementptr i64, ptr %words, i64 1
  call void @copy(ptr %in_words, ptr %addresses, i64 %count)
  %out_words = getelementptr i64, ptr %in_words, i64 %count
  %made = call i1 @outputs(ptr %frame, ptr %outs, ptr %out_words)
  br i1 %made, label %execute, label %drop
execute:
  %constant_words = getelementptr i64, ptr %out_words, i64 %out_count
  %constant_place = call i64 @number(ptr %header, i64 $constants$)
  %constants = getelementptr i64, ptr %header, i64 %constant_place
  %constant_count = call i64 @number(ptr %header, i64 $constant_count$)
  call void @copy(ptr %constant_words, ptr %constants, i64 %constant_count)
  %function = call ptr @word(ptr %header, i64 $execute$)
  %program = call ptr @word(ptr %header, i64 $program$)
  %thread = call ptr @PyEval_SaveThread()
  %status = call i64 %function(ptr %program, ptr %words)
  call void @PyEval_RestoreThread(ptr %thread)
  %bad = icmp ne i64 %status, 0
  br i1 %bad, label %stopped, label %good
good:
  call void @Py_DecRef(ptr %held)
  call void @Py_DecRef(ptr %arena)
  ret ptr %outs
stopped:
  %fail = call ptr @word(ptr %header, i64 $fail$)
  %never = call ptr @call0(ptr %fail)
  br label %drop
drop:
  call void @Py_DecRef(ptr %outs)
  br label %drop_held
drop_held:
  call void @Py_DecRef(ptr %held)
  br label %drop_arena
drop_arena:
  call void @Py_DecRef(ptr %arena)
  br label %failed
failed:
  ret ptr null
}
"""

# A builder is [0] header, [1] list of leaves, [2] how many are used, [3] where in the
# words it is.
RESULT = """
define internal i64 @advance(ptr %builder, i64 %words) alwaysinline {
  %at = getelementptr ptr, ptr %builder, i64 3
  %pc = load ptr, ptr %at
  %next = getelementptr i64, ptr %pc, i64 %words
  store ptr %next, ptr %at
  %op = load i64, ptr %pc
  ret i64 %op
}

; The pytree that the words describe, around the leaves. Null with an error set.
define internal ptr @build(ptr %builder) {
  %pc = call ptr @word(ptr %builder, i64 3)
  %op = call i64 @advance(ptr %builder, i64 1)
  switch i64 %op, label %leaf [
    i64 1, label %none
    i64 2, label %tuple
    i64 3, label %list
    i64 4, label %dict
    i64 5, label %call
  ]
leaf:
  %leaves = call ptr @word(ptr %builder, i64 1)
  %index = call i64 @number(ptr %builder, i64 2)
  %found = call ptr @PyList_GetItem(ptr %leaves, i64 %index)
  call void @Py_IncRef(ptr %found)
  %index1 = add i64 %index, 1
  %index_at = getelementptr i64, ptr %builder, i64 2
  store i64 %index1, ptr %index_at
  ret ptr %found
none:
  %header = load ptr, ptr %builder
  %nothing = call ptr @word(ptr %header, i64 $none$)
  call void @Py_IncRef(ptr %nothing)
  ret ptr %nothing
tuple:
  %tuple_count = call i64 @advance(ptr %builder, i64 1)
  %new_tuple = call ptr @PyTuple_New(i64 %tuple_count)
  %whole_tuple = call ptr @fill(ptr %builder, ptr %new_tuple, ptr @PyTuple_SetItem)
  ret ptr %whole_tuple
list:
  %list_count = call i64 @advance(ptr %builder, i64 1)
  %new_list = call ptr @PyList_New(i64 %list_count)
  %whole_list = call ptr @fill(ptr %builder, ptr %new_list, ptr @PyList_SetItem)
  ret ptr %whole_list
dict:
  %whole_dict = call ptr @build_dict(ptr %builder)
  ret ptr %whole_dict
call:
  %function = call ptr @word(ptr %pc, i64 1)
  %first = call ptr @word(ptr %pc, i64 2)
  %skipped = call i64 @advance(ptr %builder, i64 2)
  %part_count = call i64 @advance(ptr %builder, i64 1)
  %new_parts = call ptr @PyList_New(i64 %part_count)
  %parts = call ptr @fill(ptr %builder, ptr %new_parts, ptr @PyList_SetItem)
  %lacks = icmp eq ptr %parts, null
  br i1 %lacks, label %failed, label %make
make:
  %made = call ptr (ptr, ...) @PyObject_CallFunctionObjArgs(
      ptr %function, ptr %first, ptr %parts, ptr null)
  call void @Py_DecRef(ptr %parts)
  ret ptr %made
failed:
  ret ptr null
}

; Builds the entries of a new tuple or list (or null); gives it, or null.
define internal ptr @fill(ptr %builder, ptr %new, ptr %set) {
  %none = icmp eq ptr %new, null
  br i1 %none, label %failed, label %begin
begin:
  %count = call i64 @PySequence_Size(ptr %new)
  br label %head
head:
  %i = phi i64 [0, %begin], [%next_i, %store]
  %more = icmp ult i64 %i, %count
  br i1 %more, label %one, label %done
one:
  %part = call ptr @build(ptr %builder)
  %missing = icmp eq ptr %part, null
  br i1 %missing, label %drop, label %store
store:
  %kept = call i32 %set(ptr %new, i64 %i, ptr %part)
  %next_i = add i64 %i, 1
  br label %head
done:
  ret ptr %new
drop:
  call void @Py_DecRef(ptr %new)
  br label %failed
failed:
  ret ptr null
}

define internal ptr @build_dict(ptr %builder) {
begin:
  %count = call i64 @advance(ptr %builder, i64 1)
  %new = call ptr @PyDict_New()
  %none = icmp eq ptr %new, null
  br i1 %none, label %failed, label %head
head:
  %i = phi i64 [0, %begin], [%next_i, %next]
  %more = icmp ult i64 %i, %count
  br i1 %more, label %one, label %done
one:
  %word = call i64 @advance(ptr %builder, i64 1)
  %key = inttoptr i64 %word to ptr
  %part = call ptr @build(ptr %builder)
  %missing = icmp eq ptr %part, null
  br i1 %missing, label %drop, label %store
store:
  %status = call i32 @PyDict_SetItem(ptr %new, ptr %key, ptr %part)
  call void @Py_DecRef(ptr %part)
  %bad = icmp ne i32 %status, 0
  br i1 %bad, label %drop, label %next
next:
  %next_i = add i64 %i, 1
  br label %head
done:
  ret ptr %new
drop:
  call void @Py_DecRef(ptr %new)
  br label %failed
failed:
  ret ptr null
}
"""
