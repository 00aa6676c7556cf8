"""The first-order primitives by family; importing this fills the registry.

Each family's file holds its ops with all their rules. Ops that hold a graph are in
`treadle.control`.
"""

from treadle.ops import arithmetic as arithmetic
from treadle.ops import binary as binary
from treadle.ops import cast as cast
from treadle.ops import compare as compare
from treadle.ops import complex as complex
from treadle.ops import conv as conv
from treadle.ops import cumulative as cumulative
from treadle.ops import dot as dot
from treadle.ops import dynamic as dynamic
from treadle.ops import gather as gather
from treadle.ops import identity as identity
from treadle.ops import interleave as interleave
from treadle.ops import movement as movement
from treadle.ops import random_bits as random_bits
from treadle.ops import reduce as reduce
from treadle.ops import scatter as scatter
from treadle.ops import shape as shape
from treadle.ops import sort as sort
from treadle.ops import unary as unary
from treadle.ops import window as window
