"""The scripts are no part of the package: tests import them from the checkout's root."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
