"""`nest plugins doctor` and `nest plugins new` from the command line."""

import json
from pathlib import Path

import pytest

from tests.command_line import Nest
