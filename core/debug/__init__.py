"""Looking into programs: what they compute, where it goes wrong, when they compile."""

from treadle.api.key_reuse import key_reuse as key_reuse
from treadle.debug.breakpoints import Frame as Frame
from treadle.debug.breakpoints import breakpoint as breakpoint
from treadle.debug.checks import checkify as checkify
from treadle.debug.checks import error_if as error_if
from treadle.debug.leaks import check_leaks as check_leaks
from treadle.debug.nans import check_nans as check_nans
from treadle.debug.printing import callback as callback
from treadle.debug.printing import print as print
from treadle.events import log_compiles as log_compiles
from treadle.events import no_tracing as no_tracing
