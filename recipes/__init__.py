"""Training recipes behind the `treadle` command; made only of what users can import.

A recipe is one file: the options, the data, the model, the loss. The rest (runs,
checkpoints, metrics, display) is the same for all and serves recipes of your own too.
"""
