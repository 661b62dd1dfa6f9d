"""regard resume: go on with a training that was stopped."""

from regard.cli.options import Data, Device, Run
from regard.cli.train import finish


def resume(run: Run, data: Data = None, device: Device = "auto") -> None:
    """Go on from the last checkpoint, to the same bits as if it had never stopped."""
    from regard.core.device import pick_device
    from regard.run import open_run
    from regard.train.distributed import joined

    with joined(pick_device(device)):
        finish(open_run(run, data, device))
