"""Run the command: `python -m tsfmscope`, the same as `tsfmscope`."""

from tsfmscope.cli.app import main

if __name__ == "__main__":
    main()
