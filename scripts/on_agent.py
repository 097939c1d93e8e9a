"""Make this tool's environment if needed, put `omni-ci` on PATH and become the command in the arguments.

For a copy of the tool that an agent has fetched: `python3 scripts/on_agent.py omni-ci pipelines.bootstrap cuda`.
"""

from interpreter import need_python

if __name__ == "__main__":
    need_python()
    import compileall
    import os
    import shlex
    from pathlib import Path

    from bootstrap import Stop, ensure, main
    from image_tool import LAUNCHER

    def become(root: Path, words: list[str]) -> None:
        """Run the words in an environment that holds this tool; it is kept for the next job."""
        if not words:
            raise Stop(64, "no command: on_agent.py omni-ci TASK ...")
        ensure(root)
        # invoke writes no byte code, so without this each job would compile the tool anew.
        compileall.compile_dir(root / "tasks", quiet=2)
        command = root / "bin" / "omni-ci"
        command.parent.mkdir(exist_ok=True)
        made = command.with_name(f"omni-ci.{os.getpid()}")
        python = shlex.quote(str(root / ".venv" / "bin" / "python"))
        made.write_text(LAUNCHER.format(python=python, root=shlex.quote(str(root))), encoding="utf-8")
        made.chmod(0o755)
        made.replace(command)
        os.environ["PATH"] = os.pathsep.join((str(command.parent), os.environ.get("PATH", os.defpath)))
        try:
            os.execvp(words[0], words)  # noqa: S606 - no shell is meant
        except FileNotFoundError:
            raise Stop(64, f"there is no command {words[0]}.") from None

    main(become)
