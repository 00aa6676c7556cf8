"""`python -m treadle.recipes` is the `treadle` command."""

from treadle_command import main

raise SystemExit(main())
