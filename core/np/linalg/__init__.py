"""What `treadle.numpy.linalg` consists of, each from the file of its family."""

from treadle.np.contract import cross as cross
from treadle.np.contract import matmul as matmul
from treadle.np.contract import outer as outer
from treadle.np.contract import tensordot as tensordot
from treadle.np.contract import vecdot as vecdot
from treadle.np.linalg.factors import EighResult as EighResult
from treadle.np.linalg.factors import EigResult as EigResult
from treadle.np.linalg.factors import LUResult as LUResult
from treadle.np.linalg.factors import QRResult as QRResult
from treadle.np.linalg.factors import SVDResult as SVDResult
from treadle.np.linalg.factors import cholesky as cholesky
from treadle.np.linalg.factors import eig as eig
from treadle.np.linalg.factors import eigh as eigh
from treadle.np.linalg.factors import eigvals as eigvals
from treadle.np.linalg.factors import eigvalsh as eigvalsh
from treadle.np.linalg.factors import lu as lu
from treadle.np.linalg.factors import qr as qr
from treadle.np.linalg.factors import svd as svd
from treadle.np.linalg.factors import svdvals as svdvals
from treadle.np.linalg.from_factors import cho_factor as cho_factor
from treadle.np.linalg.from_factors import cho_solve as cho_solve
from treadle.np.linalg.from_factors import lu_factor as lu_factor
from treadle.np.linalg.from_factors import lu_solve as lu_solve
from treadle.np.linalg.functions import expm as expm
from treadle.np.linalg.least_squares import LstsqResult as LstsqResult
from treadle.np.linalg.least_squares import lstsq as lstsq
from treadle.np.linalg.least_squares import matrix_rank as matrix_rank
from treadle.np.linalg.least_squares import pinv as pinv
from treadle.np.linalg.norms import cond as cond
from treadle.np.linalg.norms import matrix_norm as matrix_norm
from treadle.np.linalg.norms import norm as norm
from treadle.np.linalg.norms import vector_norm as vector_norm
from treadle.np.linalg.products import diagonal as diagonal
from treadle.np.linalg.products import matrix_power as matrix_power
from treadle.np.linalg.products import multi_dot as multi_dot
from treadle.np.linalg.products import trace as trace
from treadle.np.linalg.solving import SlogdetResult as SlogdetResult
from treadle.np.linalg.solving import det as det
from treadle.np.linalg.solving import inv as inv
from treadle.np.linalg.solving import slogdet as slogdet
from treadle.np.linalg.solving import solve as solve
from treadle.np.linalg.solving import solve_triangular as solve_triangular
from treadle.np.linalg.solving import tensorinv as tensorinv
from treadle.np.linalg.solving import tensorsolve as tensorsolve
from treadle.np.shapes import matrix_transpose as matrix_transpose

__all__ = [
    "EigResult",
    "EighResult",
    "LUResult",
    "LstsqResult",
    "QRResult",
    "SVDResult",
    "SlogdetResult",
    "cho_factor",
    "cho_solve",
    "cholesky",
    "cond",
    "cross",
    "det",
    "diagonal",
    "eig",
    "eigh",
    "eigvals",
    "eigvalsh",
    "expm",
    "inv",
    "lstsq",
    "lu",
    "lu_factor",
    "lu_solve",
    "matmul",
    "matrix_norm",
    "matrix_power",
    "matrix_rank",
    "matrix_transpose",
    "multi_dot",
    "norm",
    "outer",
    "pinv",
    "qr",
    "slogdet",
    "solve",
    "solve_triangular",
    "svd",
    "svdvals",
    "tensordot",
    "tensorinv",
    "tensorsolve",
    "trace",
    "vecdot",
    "vector_norm",
]
