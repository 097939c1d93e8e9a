"""What scripts/bench_pipelines.py runs in a process of its own: selecting many steps for many files, timed inside."""

from __future__ import annotations

import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tasks.pipelines.build_facts import Build
from tasks.pipelines.changes import ChangedFile, ChangeSet, State
from tasks.pipelines.model import NativeFile, Step
from tasks.pipelines.selecting import select
from tasks.suites import areas


def step(number: int) -> Step:
    """Make a step with rules of every kind and tests of its own."""
    rules = [
        f"vllm_omni/models/model_{number}/",
        f"vllm_omni/deploy/model_{number}.yaml",
        f"vllm_omni/**/model_{number}_*.py",
        "!vllm_omni/models/**/README.md",
        "area:wan22",
    ]
    command = f"pytest -s -v tests/e2e/online_serving/test_model_{number}.py tests/e2e/offline_inference/ -m core_model"
    body = {"key": f"step-{number}", "command": command, "source_file_dependencies": rules}
    return Step(body, f"many.yml:{number + 2}", {})


def main() -> None:
    """Print the CPU seconds that a selection takes."""
    steps, files = int(sys.argv[1]), int(sys.argv[2])
    file = NativeFile("many.yml", {}, {}, tuple(map(step, range(steps))))
    changed = tuple(
        ChangedFile(f"vllm_omni/some/folder_{number % 97}/module_{number}.py", "M") for number in range(files)
    )
    changes = ChangeSet(State.KNOWN, changed, None, None, "against main")
    rules = areas.load()
    start = time.process_time()
    decisions = select(file, changes, rules, Build())
    print(time.process_time() - start)
    assert len(decisions) == steps  # noqa: S101 - a selection of nothing would be quick


if __name__ == "__main__":
    main()
