"""LLVM IR of reading arguments: the first half of `callpath_ir`."""

READ = """
define internal ptr @word(ptr %words, i64 %place) alwaysinline {
  %at = getelementptr ptr, ptr %words, i64 %place
  %value = load ptr, ptr %at
  ret ptr %value
}

define internal i64 @number(ptr %words, i64 %place) alwaysinline {
  %at = getelementptr i64, ptr %words, i64 %place
  %value = load i64, ptr %at
  ret i64 %value
}

define internal ptr @type_of(ptr %header, ptr %object) alwaysinline {
  %offset = call i64 @number(ptr %header, i64 $type_offset$)
  %at = getelementptr i8, ptr %object, i64 %offset
  %type = load ptr, ptr %at
  ret ptr %type
}

define internal ptr @call0(ptr %f) alwaysinline {
  %r = call ptr (ptr, ...) @PyObject_CallFunctionObjArgs(ptr %f, ptr null)
  ret ptr %r
}

define internal ptr @call1(ptr %f, ptr %a) alwaysinline {
  %r = call ptr (ptr, ...) @PyObject_CallFunctionObjArgs(ptr %f, ptr %a, ptr null)
  ret ptr %r
}

; What the header's word %place says is the offset of a slot: its content, or null.
define internal ptr @slot(ptr %header, i64 %place, ptr %object) alwaysinline {
  %offset = call i64 @number(ptr %header, i64 %place)
  %at = getelementptr i8, ptr %object, i64 %offset
  %value = load ptr, ptr %at
  ret ptr %value
}

; Whether an object is an Array of type %type; its address, or null.
define internal {i1, ptr} @fits(ptr %header, ptr %object, ptr %type) {
  %kind = call ptr @type_of(ptr %header, ptr %object)
  %array = call ptr @word(ptr %header, i64 $array$)
  %is_array = icmp eq ptr %kind, %array
  br i1 %is_array, label %typed, label %no
typed:
  %own = call ptr @slot(ptr %header, i64 $array_type$, ptr %object)
  %same = icmp eq ptr %own, %type
  br i1 %same, label %yes, label %no
yes:
  %number = call ptr @slot(ptr %header, i64 $array_address$, ptr %object)
  %address = call ptr @PyLong_AsVoidPtr(ptr %number)
  %found = insertvalue {i1, ptr} {i1 true, ptr undef}, ptr %address, 1
  ret {i1, ptr} %found
no:
  ret {i1, ptr} {i1 false, ptr null}
}

; Adds a leaf to the frame's list, which owns it from now on.
define internal void @add(ptr %frame, ptr %leaf, ptr %address) {
  %leaves = call ptr @word(ptr %frame, i64 1)
  %count = call i64 @number(ptr %frame, i64 2)
  %addresses = call ptr @word(ptr %frame, i64 3)
  %failed = call i32 @PyList_SetItem(ptr %leaves, i64 %count, ptr %leaf)
  %to = getelementptr ptr, ptr %addresses, i64 %count
  store ptr %address, ptr %to
  %more = add i64 %count, 1
  %count_at = getelementptr i64, ptr %frame, i64 2
  store i64 %more, ptr %count_at
  ret void
}

; Reads what an object has in it. Gives the end of the reading, or null: then the object
; is another one, or a Python error is set.
define internal ptr @leaf(ptr %frame, ptr %object, ptr %pc) {
  %header = load ptr, ptr %frame
  %type = call ptr @word(ptr %pc, i64 1)
  %end = getelementptr i64, ptr %pc, i64 2
  %known = call {i1, ptr} @fits(ptr %header, ptr %object, ptr %type)
  %address = extractvalue {i1, ptr} %known, 1
  %ready = icmp ne ptr %address, null
  br i1 %ready, label %take, label %prepare
take:
  call void @Py_IncRef(ptr %object)
  call void @add(ptr %frame, ptr %object, ptr %address)
  ret ptr %end
prepare:
  %function = call ptr @word(ptr %header, i64 $prepare$)
  %made = call ptr @call1(ptr %function, ptr %object)
  %error = icmp eq ptr %made, null
  br i1 %error, label %failed, label %check
check:
  %now = call {i1, ptr} @fits(ptr %header, ptr %made, ptr %type)
  %place = extractvalue {i1, ptr} %now, 1
  %good = icmp ne ptr %place, null
  br i1 %good, label %take_made, label %drop
take_made:
  call void @add(ptr %frame, ptr %made, ptr %place)
  ret ptr %end
drop:
  call void @Py_DecRef(ptr %made)
  br label %failed
failed:
  ret ptr null
}

define internal ptr @read(ptr %frame, ptr %object, ptr %pc) {
  %header = load ptr, ptr %frame
  %op = load i64, ptr %pc
  %first = call ptr @word(ptr %pc, i64 1)
  switch i64 %op, label %no [
    i64 0, label %leaf
    i64 1, label %same
    i64 2, label %items
    i64 3, label %entries
    i64 4, label %typed
    i64 5, label %typed
    i64 6, label %typed
    i64 7, label %static
  ]
leaf:
  %leaf_end = call ptr @leaf(ptr %frame, ptr %object, ptr %pc)
  ret ptr %leaf_end
same:
  %is_same = icmp eq ptr %object, %first
  %same_end = getelementptr i64, ptr %pc, i64 2
  %same_found = select i1 %is_same, ptr %same_end, ptr null
  ret ptr %same_found
static:
  %is_static = icmp eq ptr %object, %first
  br i1 %is_static, label %compare_hash, label %no
compare_hash:
  %found_hash = call i64 @PyObject_Hash(ptr %object)
  %hash = call i64 @number(ptr %pc, i64 2)
  %same_hash = icmp eq i64 %found_hash, %hash
  %static_end = getelementptr i64, ptr %pc, i64 3
  %static_found = select i1 %same_hash, ptr %static_end, ptr null
  ret ptr %static_found
items:
  %items_end = call ptr @items(ptr %frame, ptr %object, ptr %pc)
  ret ptr %items_end
entries:
  %entries_kind = call ptr @type_of(ptr %header, ptr %object)
  %is_dict = icmp eq ptr %entries_kind, %first
  br i1 %is_dict, label %count_entries, label %no
count_entries:
  %length = call i64 @PyDict_Size(ptr %object)
  %size = call i64 @number(ptr %pc, i64 2)
  %as_many = icmp eq i64 %length, %size
  br i1 %as_many, label %read_entries, label %no
read_entries:
  %entries_pc = getelementptr i64, ptr %pc, i64 3
  %entries_end = call ptr @values(ptr %frame, ptr %object, ptr %entries_pc)
  ret ptr %entries_end
typed:
  %kind = call ptr @type_of(ptr %header, ptr %object)
  %right = icmp eq ptr %kind, %first
  br i1 %right, label %inside, label %no
inside:
  switch i64 %op, label %fields [
    i64 5, label %held
    i64 6, label %parts
  ]
fields:
  %fields_end = call ptr @fields(ptr %frame, ptr %object, ptr %pc)
  ret ptr %fields_end
held:
  %held_end = call ptr @held(ptr %frame, ptr %object, ptr %pc)
  ret ptr %held_end
parts:
  %parts_end = call ptr @parts(ptr %frame, ptr %object, ptr %pc)
  ret ptr %parts_end
no:
  ret ptr null
}

define internal ptr @items(ptr %frame, ptr %object, ptr %pc) {
  %header = load ptr, ptr %frame
  %kind = call ptr @word(ptr %pc, i64 1)
  %own = call ptr @type_of(ptr %header, ptr %object)
  %right = icmp eq ptr %own, %kind
  br i1 %right, label %measure, label %no
measure:
  %length = call i64 @PySequence_Size(ptr %object)
  %size = call i64 @number(ptr %pc, i64 2)
  %as_long = icmp eq i64 %length, %size
  br i1 %as_long, label %begin, label %no
begin:
  %count = call i64 @number(ptr %pc, i64 3)
  %start = getelementptr i64, ptr %pc, i64 4
  br label %head
head:
  %i = phi i64 [0, %begin], [%next_i, %next]
  %here = phi ptr [%start, %begin], [%after, %next]
  %more = icmp ult i64 %i, %count
  br i1 %more, label %one, label %done
one:
  %index = load i64, ptr %here
  %child = call ptr @PySequence_GetItem(ptr %object, i64 %index)
  %missing = icmp eq ptr %child, null
  br i1 %missing, label %no, label %descend
descend:
  %inside = getelementptr i64, ptr %here, i64 1
  %after = call ptr @read(ptr %frame, ptr %child, ptr %inside)
  call void @Py_DecRef(ptr %child)
  %other = icmp eq ptr %after, null
  br i1 %other, label %no, label %next
next:
  %next_i = add i64 %i, 1
  br label %head
done:
  ret ptr %here
no:
  ret ptr null
}

; Reads values of a dict: count, count x (key, reading).
define internal ptr @values(ptr %frame, ptr %dict, ptr %pc) {
begin:
  %count = load i64, ptr %pc
  %start = getelementptr i64, ptr %pc, i64 1
  br label %head
head:
  %i = phi i64 [0, %begin], [%next_i, %next]
  %here = phi ptr [%start, %begin], [%after, %next]
  %more = icmp ult i64 %i, %count
  br i1 %more, label %one, label %done
one:
  %key = load ptr, ptr %here
  %child = call ptr @PyDict_GetItemWithError(ptr %dict, ptr %key)
  %missing = icmp eq ptr %child, null
  br i1 %missing, label %no, label %descend
descend:
  call void @Py_IncRef(ptr %child)
  %inside = getelementptr i64, ptr %here, i64 1
  %after = call ptr @read(ptr %frame, ptr %child, ptr %inside)
  call void @Py_DecRef(ptr %child)
  %other = icmp eq ptr %after, null
  br i1 %other, label %no, label %next
next:
  %next_i = add i64 %i, 1
  br label %head
done:
  ret ptr %here
no:
  ret ptr null
}

define internal ptr @fields(ptr %frame, ptr %object, ptr %pc) {
begin:
  %count = call i64 @number(ptr %pc, i64 2)
  %start = getelementptr i64, ptr %pc, i64 3
  br label %head
head:
  %i = phi i64 [0, %begin], [%next_i, %next]
  %here = phi ptr [%start, %begin], [%after, %next]
  %more = icmp ult i64 %i, %count
  br i1 %more, label %next, label %open
next:
  %offset = load i64, ptr %here
  %at = getelementptr i8, ptr %object, i64 %offset
  %found = load ptr, ptr %at
  %wanted = call ptr @word(ptr %here, i64 1)
  %after = getelementptr i64, ptr %here, i64 2
  %next_i = add i64 %i, 1
  %same = icmp eq ptr %found, %wanted
  br i1 %same, label %head, label %no
open:
  %dict = call ptr @PyObject_GenericGetDict(ptr %object, ptr null)
  %missing = icmp eq ptr %dict, null
  br i1 %missing, label %no, label %descend
descend:
  %end = call ptr @values(ptr %frame, ptr %dict, ptr %here)
  call void @Py_DecRef(ptr %dict)
  ret ptr %end
no:
  ret ptr null
}

; Whether two Structures are equal: `Structure.__eq__`, for those of a module that was
; rebuilt and is one of hundreds of parts. 0 also if an error is set.
define internal i1 @equal(ptr %header, ptr %a, ptr %b) {
begin:
  %same = icmp eq ptr %a, %b
  br i1 %same, label %yes, label %compare_kinds
compare_kinds:
  %kind_a = call ptr @slot(ptr %header, i64 $form_kind$, ptr %a)
  %kind_b = call ptr @slot(ptr %header, i64 $form_kind$, ptr %b)
  %same_kind = icmp eq ptr %kind_a, %kind_b
  br i1 %same_kind, label %compare_static, label %no
compare_static:
  %static_a = call ptr @slot(ptr %header, i64 $form_aux$, ptr %a)
  %static_b = call ptr @slot(ptr %header, i64 $form_aux$, ptr %b)
  %same_static = call i32 @PyObject_RichCompareBool(ptr %static_a, ptr %static_b, i32 2)
  %is_same_static = icmp eq i32 %same_static, 1
  br i1 %is_same_static, label %measure, label %no
measure:
  ; Equal structures share their children from their first comparison on, and the tuple
  ; may be replaced while `==` runs.
  %parts_a = call ptr @slot(ptr %header, i64 $form_children$, ptr %a)
  %parts_b = call ptr @slot(ptr %header, i64 $form_children$, ptr %b)
  call void @Py_IncRef(ptr %parts_a)
  call void @Py_IncRef(ptr %parts_b)
  %length_a = call i64 @PySequence_Size(ptr %parts_a)
  %length_b = call i64 @PySequence_Size(ptr %parts_b)
  %same_length = icmp eq i64 %length_a, %length_b
  %shared = icmp eq ptr %parts_a, %parts_b
  %count = select i1 %shared, i64 0, i64 %length_a
  br i1 %same_length, label %head, label %done
head:
  %i = phi i64 [0, %measure], [%next_i, %one]
  %more = icmp slt i64 %i, %count
  br i1 %more, label %one, label %done
one:
  %part_a = call ptr @PyTuple_GetItem(ptr %parts_a, i64 %i)
  %part_b = call ptr @PyTuple_GetItem(ptr %parts_b, i64 %i)
  %same_part = call i1 @equal(ptr %header, ptr %part_a, ptr %part_b)
  %next_i = add i64 %i, 1
  br i1 %same_part, label %head, label %done
done:
  %answer = phi i1 [false, %measure], [true, %head], [false, %one]
  call void @Py_DecRef(ptr %parts_a)
  call void @Py_DecRef(ptr %parts_b)
  ret i1 %answer
yes:
  ret i1 true
no:
  ret i1 false
}

; The slot has a tuple (list of leaves, structure), or None once it has been opened.
define internal ptr @held(ptr %frame, ptr %object, ptr %pc) {
  %header = load ptr, ptr %frame
  %offset = call i64 @number(ptr %pc, i64 2)
  %at = getelementptr i8, ptr %object, i64 %offset
  %pair = load ptr, ptr %at
  %none = call ptr @word(ptr %header, i64 $none$)
  %opened = icmp eq ptr %pair, %none
  %unset = icmp eq ptr %pair, null
  %gone = or i1 %opened, %unset
  br i1 %gone, label %no, label %compare
compare:
  call void @Py_IncRef(ptr %pair)
  %form = call ptr @PyTuple_GetItem(ptr %pair, i64 1)
  %wanted = call ptr @word(ptr %pc, i64 3)
  %same = icmp eq ptr %form, %wanted
  br i1 %same, label %descend, label %compare_slowly
compare_slowly:
  %equal = call i1 @equal(ptr %header, ptr %form, ptr %wanted)
  br i1 %equal, label %descend, label %drop
descend:
  %leaves = call ptr @PyTuple_GetItem(ptr %pair, i64 0)
  %inside = getelementptr i64, ptr %pc, i64 4
  %end = call ptr @read(ptr %frame, ptr %leaves, ptr %inside)
  call void @Py_DecRef(ptr %pair)
  ret ptr %end
drop:
  call void @Py_DecRef(ptr %pair)
  br label %no
no:
  ret ptr null
}

define internal ptr @parts(ptr %frame, ptr %object, ptr %pc) {
  %flatten = call ptr @word(ptr %pc, i64 2)
  %pair = call ptr @call1(ptr %flatten, ptr %object)
  %failed = icmp eq ptr %pair, null
  br i1 %failed, label %no, label %compare
compare:
  %static = call ptr @PySequence_GetItem(ptr %pair, i64 1)
  %lacks_static = icmp eq ptr %static, null
  br i1 %lacks_static, label %drop, label %compare_static
compare_static:
  %wanted = call ptr @word(ptr %pc, i64 3)
  %found_hash = call i64 @PyObject_Hash(ptr %static)
  %hash = call i64 @number(ptr %pc, i64 4)
  %same_hash = icmp eq i64 %found_hash, %hash
  br i1 %same_hash, label %compare_values, label %drop_static
drop_static:
  call void @Py_DecRef(ptr %static)
  br label %drop
compare_values:
  %equal = call i32 @PyObject_RichCompareBool(ptr %static, ptr %wanted, i32 2)
  call void @Py_DecRef(ptr %static)
  %is_equal = icmp eq i32 %equal, 1
  br i1 %is_equal, label %open, label %drop
open:
  %children = call ptr @PySequence_GetItem(ptr %pair, i64 0)
  %lacks_children = icmp eq ptr %children, null
  br i1 %lacks_children, label %drop, label %descend
descend:
  %inside = getelementptr i64, ptr %pc, i64 5
  %end = call ptr @read(ptr %frame, ptr %children, ptr %inside)
  call void @Py_DecRef(ptr %children)
  call void @Py_DecRef(ptr %pair)
  ret ptr %end
drop:
  call void @Py_DecRef(ptr %pair)
  br label %no
no:
  ret ptr null
}
"""
