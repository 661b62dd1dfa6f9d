"""Side-by-side measurements against peers, printed as ratios; never a timed test."""
