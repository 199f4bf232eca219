"""``python -m gaudi_tune`` is the same as ``gaudi-tune``."""

import sys

from gaudi_tune.cli.commands import main

if __name__ == "__main__":
    sys.exit(main())
