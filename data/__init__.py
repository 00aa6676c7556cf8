"""Data: batches of it in a seeded order, which go on exactly where they stopped.

>>> import numpy as np
>>> from treadle import data
>>> loader = data.Loader((np.zeros((6, 4), np.float32), np.arange(6)), batch_size=3)
>>> for x, y in loader:
...     print(x.shape, y.shape)
(3, 4) (3,)
(3, 4) (3,)
"""

from treadle.data import augment as augment
from treadle.data.collate import pad as pad
from treadle.data.collate import stack as stack
from treadle.data.files import DataSet as DataSet
from treadle.data.files import Labelled as Labelled
from treadle.data.files import read as read
from treadle.data.loader import Loader as Loader
from treadle.data.sources import Source as Source
from treadle.data.sources import source_of as source_of
from treadle.data.stream import Stream as Stream
from treadle.data.tables import Column as Column
from treadle.names import suggest as _suggest

_suggest(__name__)
