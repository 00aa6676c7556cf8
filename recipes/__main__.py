"""`python -m treadle.recipes` is the `treadle` command."""

from treadle.recipes.cli import main

raise SystemExit(main())
