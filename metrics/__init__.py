"""Metrics: pytrees that are updated batch by batch, merged, and read at the end.

>>> import treadle.numpy as tnp
>>> from treadle import metrics
>>> accuracy = metrics.Accuracy()
>>> for predictions, labels in [([1, 0], [1, 1]), ([0, 1], [0, 1])]:
...     accuracy = accuracy.update(tnp.array(predictions), tnp.array(labels))
>>> accuracy.compute()
Array(0.75, dtype=float32)
"""

from treadle.metrics.base import Metric as Metric
from treadle.metrics.base import merged as merged
from treadle.metrics.classification import F1 as F1
from treadle.metrics.classification import Accuracy as Accuracy
from treadle.metrics.classification import ConfusionMatrix as ConfusionMatrix
from treadle.metrics.classification import Precision as Precision
from treadle.metrics.classification import Recall as Recall
from treadle.metrics.classification import TopKAccuracy as TopKAccuracy
from treadle.metrics.collection import Collection as Collection
from treadle.metrics.mean import Mean as Mean
from treadle.metrics.mean import Perplexity as Perplexity
from treadle.metrics.mean import Statistics as Statistics
from treadle.metrics.mean import Summary as Summary
from treadle.metrics.ranking import ROCAUC as ROCAUC
from treadle.metrics.ranking import AveragePrecision as AveragePrecision
from treadle.metrics.ranking import average_precision as average_precision
from treadle.metrics.ranking import roc_auc as roc_auc
from treadle.metrics.regression import R2 as R2
from treadle.metrics.regression import MeanSquaredError as MeanSquaredError
from treadle.metrics.regression import Pearson as Pearson
from treadle.names import suggest as _suggest

_suggest(__name__)
