"""`python -m trio_cogment` is `trio-cogment`."""

from trio_cogment.cli import main

if __name__ == "__main__":
    main()
