"""`treadle.numpy.linalg`: linear algebra on arrays, differentiable and batched.

    import treadle.numpy as tnp
    x = tnp.linalg.solve(a, b)

Names and arguments are those of `numpy.linalg`; those of `scipy.linalg` that NumPy has
not are here, too. The last two axes are those of matrices, the others those of batches.
Where LAPACK fails (a matrix that is not positive definite, or singular), the result is
not-a-number or infinite, for that matrix alone: nothing is raised.
"""

from treadle.names import suggest as _suggest
from treadle.np.linalg import *  # noqa: F403

_suggest("treadle.numpy.linalg")
