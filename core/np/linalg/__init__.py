"""What `treadle.numpy.linalg` consists of, each from the file of its family."""

from treadle.np.contract import cross as cross
from treadle.np.contract import matmul as matmul
from treadle.np.contract import tensordot as tensordot
from treadle.np.contract import vecdot as vecdot
from treadle.np.linalg.constants import dft as dft
from treadle.np.linalg.constants import hadamard as hadamard
from treadle.np.linalg.constants import helmert as helmert
from treadle.np.linalg.constants import hilbert as hilbert
from treadle.np.linalg.constants import invhilbert as invhilbert
from treadle.np.linalg.constants import invpascal as invpascal
from treadle.np.linalg.constants import pascal as pascal
from treadle.np.linalg.factors import EighResult as EighResult
from treadle.np.linalg.factors import EigResult as EigResult
from treadle.np.linalg.factors import LUResult as LUResult
from treadle.np.linalg.factors import QRRawResult as QRRawResult
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
from treadle.np.linalg.patterns import block_diag as block_diag
from treadle.np.linalg.patterns import circulant as circulant
from treadle.np.linalg.patterns import companion as companion
from treadle.np.linalg.patterns import convolution_matrix as convolution_matrix
from treadle.np.linalg.patterns import fiedler as fiedler
from treadle.np.linalg.patterns import fiedler_companion as fiedler_companion
from treadle.np.linalg.patterns import hankel as hankel
from treadle.np.linalg.patterns import leslie as leslie
from treadle.np.linalg.patterns import toeplitz as toeplitz
from treadle.np.linalg.polar import PolarResult as PolarResult
from treadle.np.linalg.polar import eigh_tridiagonal as eigh_tridiagonal
from treadle.np.linalg.polar import expm_frechet as expm_frechet
from treadle.np.linalg.polar import polar as polar
from treadle.np.linalg.polar import qr_multiply as qr_multiply
from treadle.np.linalg.products import diagonal as diagonal
from treadle.np.linalg.products import matrix_power as matrix_power
from treadle.np.linalg.products import multi_dot as multi_dot
from treadle.np.linalg.products import outer as outer
from treadle.np.linalg.products import trace as trace
from treadle.np.linalg.schur import HessenbergResult as HessenbergResult
from treadle.np.linalg.schur import SchurResult as SchurResult
from treadle.np.linalg.schur import funm as funm
from treadle.np.linalg.schur import hessenberg as hessenberg
from treadle.np.linalg.schur import rsf2csf as rsf2csf
from treadle.np.linalg.schur import schur as schur
from treadle.np.linalg.schur import solve_sylvester as solve_sylvester
from treadle.np.linalg.schur import sqrtm as sqrtm
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
    "HessenbergResult",
    "LUResult",
    "LstsqResult",
    "PolarResult",
    "QRRawResult",
    "QRResult",
    "SVDResult",
    "SchurResult",
    "SlogdetResult",
    "block_diag",
    "cho_factor",
    "cho_solve",
    "cholesky",
    "circulant",
    "companion",
    "cond",
    "convolution_matrix",
    "cross",
    "det",
    "dft",
    "diagonal",
    "eig",
    "eigh",
    "eigh_tridiagonal",
    "eigvals",
    "eigvalsh",
    "expm",
    "expm_frechet",
    "fiedler",
    "fiedler_companion",
    "funm",
    "hadamard",
    "hankel",
    "helmert",
    "hessenberg",
    "hilbert",
    "inv",
    "invhilbert",
    "invpascal",
    "leslie",
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
    "pascal",
    "pinv",
    "polar",
    "qr",
    "qr_multiply",
    "rsf2csf",
    "schur",
    "slogdet",
    "solve",
    "solve_sylvester",
    "solve_triangular",
    "sqrtm",
    "svd",
    "svdvals",
    "tensordot",
    "tensorinv",
    "tensorsolve",
    "toeplitz",
    "trace",
    "vecdot",
    "vector_norm",
]
