"""Tasks that belong to no domain."""

from __future__ import annotations

from typing import Any

from tasks.support.task import task


@task(
    help={
        "json": "print the findings as JSON on stdout",
        "source": "checkout of the library; default: OMNI_CI_SOURCE, or around the current directory",
        "store": "wheel store to look at; default: OMNI_CI_STORE, or the local one",
        "report": "print an environment report for a bug ticket on stdout, secrets left out",
    }
)
def doctor(
    _context: Any,
    json: bool = False,
    source: str | None = None,
    store: str | None = None,
    report: bool = False,
) -> None:
    """Show what is here, what is missing, and which tasks need it."""
    from tasks.support import console, settings
    from tasks.support.doctor import as_data, examine, require_essentials, show
    from tasks.support.doctor_report import report_text

    chosen = settings.load(source=source, store=store)
    findings = examine(chosen)
    if report:
        console.emit_text(report_text(chosen, findings))
    elif json:
        console.emit_json({"profile": chosen.profile.value, "findings": as_data(findings)})
    else:
        show(findings)
    require_essentials(findings)
