"""See `tests.sim.suite`."""

import sys

from tests.sim.suite import main  # in a module of its own, so that processes of `multiprocessing` can import it

if __name__ == "__main__":
    sys.exit(main())
