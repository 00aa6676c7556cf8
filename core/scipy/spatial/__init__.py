"""`treadle.scipy.spatial`: rotations."""

from treadle.scipy.spatial import transform as transform

__all__ = ["transform"]
