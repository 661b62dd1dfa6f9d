"""Work over files and requests with any trained run: translate, align, predict, draw."""
