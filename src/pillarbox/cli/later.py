"""`scheduled …`, `erase`: messages that are not to be, or not to be read."""

from __future__ import annotations

import typer

from pillarbox.admin import actions, reads
from pillarbox.admin.audit import note
from pillarbox.admin.words import messages, span
from pillarbox.cli import selection as s
from pillarbox.cli.app import EPILOG, app
from pillarbox.errors import Refused

scheduled_app = typer.Typer(help="Messages that are to be added later.", no_args_is_help=True, epilog=EPILOG)
app.add_typer(scheduled_app, name="scheduled")


@scheduled_app.command("list", epilog=EPILOG)
def scheduled_list(
    ctx: typer.Context,
    ids: s.Ids = None,
    *,
    aggregate: s.AggregateOf = None,
    key: s.KeyOf = None,
    limit: s.Limit = 100,
) -> None:
    """List delayed messages, the next one first."""
    with s.at_the_desk(ctx) as at:
        found = reads.scheduled(at.desk.scheduled(ids or (), aggregate, key, limit))

        def say() -> None:
            if not found:
                at.out.note("Nothing is scheduled.")
                return
            rows = [
                (
                    each.id,
                    f"{each.aggregate}/{each.type}",
                    each.key,
                    "now" if (each.due_in or 0) <= 0 else span(each.due_in or 0),
                )
                for each in found
            ]
            at.out.table(("id", "type", "key", "due in"), rows)

        at.out.answer(found, say)


@scheduled_app.command("cancel", epilog=EPILOG)
def scheduled_cancel(
    ctx: typer.Context,
    ids: s.Ids = None,
    *,
    aggregate: s.AggregateOf = None,
    key: s.KeyOf = None,
    limit: s.Limit = s.MANY,
    dry_run: s.DryRun = False,
    yes: s.Yes = False,
    why: s.Why = "",
) -> None:
    """Never add these delayed messages; the audit keeps their ids."""
    if not (ids or aggregate or key):
        raise Refused("Nothing says which messages are meant.", "Give ids, --aggregate or --key.")
    with s.at_the_desk(ctx) as at:
        found = at.desk.scheduled(ids or (), aggregate, key, limit)
        if dry_run or not found:
            would = {"action": "cancel", "dry_run": dry_run, "would_cancel": reads.scheduled(found)}
            at.out.answer(would, lambda: at.out.line(f"{messages(len(found))} would be cancelled."))
            return
        at.out.confirm(f"{messages(len(found))} will never be added. Go on?", yes=yes)
        gone = actions.cancel(at.actions, found, note(why))
        answer = {"action": "cancel", "cancelled": gone, "left": len(found) - len(gone)}
        at.out.answer(answer, lambda: at.out.line(f"{messages(len(gone))} cancelled."))


@app.command(epilog=EPILOG)
def erase(
    ctx: typer.Context,
    ids: s.Ids = None,
    *,
    aggregate: s.AggregateOf = None,
    key: s.KeyOf = None,
    dry_run: s.DryRun = False,
    yes: s.Yes = False,
    why: s.Why = "",
) -> None:
    """Blank payload and headers wherever they still lie; id, type and key stay. What is undelivered becomes skipped."""
    with s.at_the_desk(ctx) as at:
        with at.out.waiting("looking for the messages"):
            pages = list(actions.to_erase(at.desk, ids or (), aggregate, key))
        number = sum(len(page.found) for page in pages)
        undelivered = sum(len({id for _route, id in page.skip}) for page in pages)
        undelivered += sum(one.place == "scheduled" for page in pages for one in page.found)
        if dry_run or not number:
            would = {
                "action": "erase",
                "dry_run": dry_run,
                "would_erase": [f.message_id for p in pages for f in p.found],
            }
            at.out.answer(
                would, lambda: at.out.line(f"{messages(number)} would be erased, {undelivered} of them not yet read.")
            )
            return
        at.out.confirm(
            f"{messages(number)} will be blanked for good, and what is not delivered of them will never be "
            f"({undelivered} are not even read yet). Go on?",
            yes=yes,
        )
        with at.out.waiting(f"erasing {messages(number)}"):
            erased = sum(actions.erase(at.actions, page, note(why)) for page in pages)
        at.out.answer({"action": "erase", "erased": erased}, lambda: at.out.line(f"{messages(erased)} erased."))
