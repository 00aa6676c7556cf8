# `treadle.numpy` is `treadle.np` by another name, given to it when that is imported: a
# file `numpy.py` here would be in the way of NumPy for whoever starts Python in this
# folder. Type checkers look for a file, and a stub is in nobody's way.
from treadle.np import *  # noqa: F403
from treadle.np import __array_api_version__ as __array_api_version__
from treadle.np import __array_namespace_info__ as __array_namespace_info__
