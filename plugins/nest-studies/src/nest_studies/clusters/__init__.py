"""Which cluster trains a model in time: `nest recommend`."""
