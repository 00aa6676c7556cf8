"""`treadle.extend`: operations of your own, with their rules.

Most programs need none of this: functions compose, and `td.custom_jvp`, `td.custom_vjp`
and `td.custom_vmap` give derivatives and batching of one's own. A primitive is for what
Treadle's operations can't compute.
"""

from treadle.extend.foreign import ffi_call as ffi_call
from treadle.extend.kernel import kernel as kernel
from treadle.extend.primitive import Primitive as Primitive
from treadle.extend.primitive import elementwise as elementwise
from treadle.extend.primitive import primitive as primitive
from treadle.trace.op import Linear as Linear
