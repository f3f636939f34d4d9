"""`python -m kvledger.tools` is `kvledger`."""

import sys

from kvledger.tools.cli import main

if __name__ == "__main__":
    sys.exit(main())
