"""Training recipes behind the `treadle` command; made only of what users can import.

A recipe is one file: the options, the data, the model, the loss. The rest (runs,
checkpoints, metrics, display) is the same for all and serves recipes of your own too;
`fit` trains from Python.
"""

from treadle.recipes.callbacks import Callback as Callback
from treadle.recipes.callbacks import EarlyStopping as EarlyStopping
from treadle.recipes.callbacks import Progress as Progress
from treadle.recipes.errors import UsageError as UsageError
from treadle.recipes.fitting import Fitted as Fitted
from treadle.recipes.fitting import evaluate as evaluate
from treadle.recipes.fitting import fit as fit
from treadle.recipes.task import Learner as Learner
from treadle.recipes.task import Recipe as Recipe
from treadle.recipes.tensorboard import TensorBoard as TensorBoard
