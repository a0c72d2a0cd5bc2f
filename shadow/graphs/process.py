"""The process of `shadow graphs`: one worker, its replays run again. `python -m shadow.graphs.process JSON FD`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from shadow.alone import speaker
from shadow.graphs.messages import Begun, Ended, Replayed, Said, Task


def run(task: Task, say: Callable[[Said], None]) -> None:
    """Errors propagate; what was found before them has been said."""
    import torch

    from shadow.child import build, check_origin, read_requests
    from shadow.device import unavailable
    from shadow.graphs.watch import ReplayWatch
    from shadow.observer import EnoughSteps

    tree = Path(task.tree)
    built = build(tree, task.options, task.threads)
    batches = [read_requests(built.worker, path, None) for path in task.batches]
    watch = ReplayWatch(
        built.worker,
        built.wrapper,
        lambda step, comparison: say(Replayed(step, comparison)),
        every=task.every,
        max_steps=task.max_steps,
    )
    check_origin(tree)
    device = torch.device(built.worker.device)
    say(
        Begun(
            requests=sum(len(ready) for ready, _ in batches),
            refused=sum(refused for _, refused in batches),
            device=torch.cuda.get_device_name(device) if device.type == "cuda" else str(device),
            torch=str(torch.__version__),
            waits=unavailable(device),
        )
    )
    try:
        for requests, _ in batches:
            built.worker.generate(requests)
    except EnoughSteps:
        pass
    watch.drain()
    built.worker.close()
    say(Ended(watch.forwards, watch.waited))


def main(arguments: Sequence[str]) -> int:
    with speaker(arguments[1]) as connection:
        run(msgspec.json.decode(arguments[0], type=Task), connection.send)
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
