# /// script
# requires-python = ">=3.10"
# ///
"""Random search with Ray's ASHA, as serve.py has it: the rival that needs nothing."""

from __future__ import annotations

import random

from serve import Asha, Point, serve


class RandomAsha(Asha):
    def __init__(self, kind: str, seed: int, dimensions: int, epochs: int, workers: int) -> None:
        super().__init__(epochs)
        self.generator, self.dimensions = random.Random(seed), dimensions

    def propose(self) -> Point:
        return [self.generator.random() for _ in range(self.dimensions)]


if __name__ == "__main__":
    serve(RandomAsha)
