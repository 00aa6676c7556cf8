"""`treadle.scipy.cluster`: clusters of points."""

from treadle.scipy.cluster import vq as vq

__all__ = ["vq"]
