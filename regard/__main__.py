"""`python -m regard`, which is also how torchrun starts a training."""

from regard.cli import main

main()
