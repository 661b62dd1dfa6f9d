"""The recipes that come with the package: one TOML file each."""
