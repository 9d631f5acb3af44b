"""The version of this distribution, for whoever runs it from a folder nothing was installed from, too."""

__version__ = "0.1.0"
