"""The same mathematics laid out for speed; each kernel can be switched off."""
