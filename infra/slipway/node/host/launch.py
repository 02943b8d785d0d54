"""Start the runner from where its bundle lies: `slipway_node.py run|status|prove|…`."""

import os
import sys

if __name__ == "__main__":
    sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
    from slipway.node.host.main import main

    sys.exit(main(sys.argv[1:]))
