"""`treadle.scipy.sparse`: linear equations whose matrices are known by what they do."""

from treadle.scipy.sparse import linalg as linalg
