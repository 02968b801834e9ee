"""``python -m orchestrator.cli`` is ``h2h``."""

import sys

from orchestrator.cli import main

sys.exit(main())
