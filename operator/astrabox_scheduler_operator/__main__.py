"""`python -m astrabox_scheduler_operator`."""

import sys

from astrabox_scheduler_operator.command import main

if __name__ == "__main__":
    sys.exit(main())
