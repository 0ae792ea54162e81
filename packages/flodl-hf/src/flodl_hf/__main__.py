"""``python -m flodl_hf``: the commands of ``fdl flodl-hf``."""

import sys

from flodl_hf.commands import main

if __name__ == "__main__":
    sys.exit(main())
