"""How the vectors of a text's tokens become one vector, as sentence-transformers folders have it.

`1_Pooling/config.json` names what is put beside each other: the first token, the mean, the maximum,
or the sum over the root of the length (Reimers and Gurevych 2019); `modules.json`, whether the
result has unit length. A folder with neither is pooled by the mean, with unit length.
"""

from dataclasses import dataclass
from pathlib import Path

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from regard.core.atomic import write_json_file
from regard.core.errors import UserError
from regard.core.folder import read_json, read_json_object

POOLING = "pooling.json"
"""The file of a run that keeps it."""
_MODES = {
    "pooling_mode_cls_token": "first",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt",
}


@dataclass(frozen=True)
class Pooling:
    """Modes whose vectors are put beside each other, and whether the result has unit length."""

    modes: tuple[str, ...] = ("mean",)
    normalise: bool = True

    def apply(
        self, states: Float[Tensor, "B T D"], real: Bool[Tensor, "B T"]
    ) -> Float[Tensor, "B M"]:
        """One vector for each text.

        >>> states = torch.tensor([[[3.0], [5.0], [9.0]]])
        >>> real = torch.tensor([[True, True, False]])
        >>> Pooling(("first", "mean", "max"), normalise=False).apply(states, real).tolist()
        [[3.0, 4.0, 5.0]]
        """
        kept = states * real[..., None]  # [B,T,D]
        lengths = real.sum(1, keepdim=True).to(states.dtype)  # [B,1]
        lowest = torch.finfo(states.dtype).min
        vectors = {
            "first": states[:, 0],
            "mean": kept.sum(1) / lengths,
            "max": torch.where(real[..., None], states, lowest).amax(1),
            "mean_sqrt": kept.sum(1) / lengths.sqrt(),
        }
        whole = torch.cat([vectors[mode] for mode in self.modes], dim=1)
        return nn.functional.normalize(whole, dim=1) if self.normalise else whole


def read_pooling(folder: Path) -> Pooling:
    """The pooling of a run, or of a folder of sentence-transformers."""
    if (folder / POOLING).exists():
        held = read_json_object(folder / POOLING)
        modes, path = held.get("modes"), folder / POOLING
        if not isinstance(modes, list) or not modes or not set(modes) <= set(_MODES.values()):
            raise UserError(f"{path}: modes must be some of {', '.join(_MODES.values())}")
        return Pooling(tuple(modes), held.get("normalise") is True)
    path = folder / "1_Pooling" / "config.json"
    if not path.exists():
        return Pooling()
    asked = [name for name, each in read_json_object(path).items() if each is True]
    chosen = [name for name in asked if name.startswith("pooling_mode_")]
    unknown = [name for name in chosen if name not in _MODES]
    if unknown or not chosen:
        raise UserError(
            f"{path}: {unknown[0] if unknown else 'no pooling mode'} is not known here, only "
            f"{', '.join(_MODES)}"
        )
    modules = read_json(folder / "modules.json") if (folder / "modules.json").exists() else []
    kinds = (
        [each.get("type") for each in modules if isinstance(each, dict)]
        if isinstance(modules, list)
        else []
    )
    unit = any(str(each).endswith(".Normalize") for each in kinds)
    return Pooling(tuple(_MODES[name] for name in chosen), unit)


def write_pooling(folder: Path, pooling: Pooling) -> None:
    """Keep the pooling of a checkpoint in the run that is made of it."""
    values: dict[str, object] = {"modes": list(pooling.modes), "normalise": pooling.normalise}
    write_json_file(folder / POOLING, values)
