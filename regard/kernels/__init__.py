"""The same mathematics laid out for speed; each kernel can be switched off.

>>> from regard import kernels
>>> with kernels.disabled("packed_linear", "onednn"):
...     kernels.enabled("packed_linear"), kernels.enabled("stepwise")
(False, True)
"""

from regard.kernels.switch import KERNELS, disabled, enabled

__all__ = ["KERNELS", "disabled", "enabled"]
