"""Data going in: the embedded world of emoji scenes, its captions, and the quadruplets made from them."""
