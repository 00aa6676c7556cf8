"""Files of weights from elsewhere: read into dicts of arrays, and into modules."""
