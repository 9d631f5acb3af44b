"""Lets tests import the modules beside them: the folder is no package."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
