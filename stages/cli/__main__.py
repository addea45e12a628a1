"""`python -m stages.cli` is `tsfm-lens`."""

from stages.cli.app import main

if __name__ == "__main__":
    main()
