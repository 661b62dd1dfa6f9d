"""Public datasets by name: where they are published, their download and conversion.

`regard data list`, `regard data get NAME` and `regard data check` are the commands. Nothing is
downloaded unless a name is given. One TOML file in `sources/` describes one dataset.
"""

from regard.datasets.table import PublicDataset, command_to_get, public_dataset, public_datasets

__all__ = ["PublicDataset", "command_to_get", "public_dataset", "public_datasets"]
