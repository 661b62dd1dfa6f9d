"""regard resume: go on with a training that was stopped."""

from regard.cli.options import DataOption, DeviceOption, RunArgument
from regard.cli.train import finish


def resume(run: RunArgument, data: DataOption = None, device: DeviceOption = "auto") -> None:
    """Go on from the last checkpoint, to the same bits as if it had never stopped."""
    from regard.core.device import device_of_rank
    from regard.runs.run import open_run
    from regard.train.parallel.world import process_group

    with process_group(device_of_rank(device)):
        finish(open_run(run, data, device))
