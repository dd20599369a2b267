"""Renders an animation frame by frame. However often it is taken away, each frame that is finished stays finished.

Run it as a job: ``command: [python, examples/render_frames.py, --frames, "30"]``.
"""

from __future__ import annotations

import argparse
import math
import os
import time
from pathlib import Path

from prefect_dispatch.job import complete, merge, remaining, should_checkpoint

WIDTH, HEIGHT = 64, 48


def render(frame: int, frames: int) -> bytes:
    """One frame as a picture in the format PGM: a wave that goes round once in the whole film."""
    phase = 2 * math.pi * frame / frames
    pixels = bytes(
        int(127.5 + 127.5 * math.sin(0.2 * x + 0.1 * y + phase)) for y in range(HEIGHT) for x in range(WIDTH)
    )
    return b"P5 %d %d 255\n" % (WIDTH, HEIGHT) + pixels


def main() -> int:
    """Render what is left, then put the film together."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--frames", type=int, default=30, help="how many frames (default: 30)")
    parser.add_argument("--seconds", type=float, default=0.0, help="how long a frame takes at least (default: 0)")
    parser.add_argument("--film", type=Path, default=Path("film.pgm"), help="where the film goes (default: film.pgm)")
    options = parser.parse_args()
    folder = Path(os.environ["DISPATCH_EXEC_DIR"])
    left = remaining(range(options.frames))
    print(f"{len(left)} of {options.frames} frames to render", flush=True)
    for frame in left:
        if should_checkpoint():
            print(f"asked to leave before frame {frame}", flush=True)
            return 0
        path = folder / f"{frame}.pgm"
        path.write_bytes(render(frame, options.frames))
        time.sleep(options.seconds)
        complete(frame, str(path))
    parts = merge(range(options.frames))
    options.film.write_bytes(b"".join(Path(part.path or "").read_bytes() for part in parts))
    print(f"{options.film} has {len(parts)} frames by {len({part.attempt for part in parts})} executions", flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
