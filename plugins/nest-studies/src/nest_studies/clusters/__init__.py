"""Choice of a cluster that trains a model in time: `nest recommend`."""
