"""Gates that apply to every run: failed ops, users without a session, torn reads, a server that died."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from tsbench import units
from tsbench.results.summary import FAILED_CONNECTIONS, SERVER_DEATHS, TORN_READS, GateResult

if TYPE_CHECKING:
    from collections import Counter


def failed_ops(
    done: int, failed: int, unknown: int, causes: Counter[str], allowed: float, *, partial: int = 0
) -> GateResult:
    """Evaluate the built-in gate on ops that failed, in whole or in part, or ended unknown.

    `allowed` is their share of all ops that ended.
    """
    gate, bad = f"failed ops<={100 * allowed:.3g}%", failed + unknown + partial
    if not done:
        return GateResult(gate, None, "not judged", "no op ended in the measured window", built_in=True)
    basis = f"{units.format_count(bad)} of {units.format_count(done)} ops"
    if bad:
        most = ", ".join(f"{cause} {count}" for cause, count in causes.most_common(3))
        in_part = f", {partial} writes were refused in part" if partial else ""
        basis = f"{basis}: {failed} ops failed and {unknown} ended unknown{in_part} ({most})"
    share = bad / done
    return GateResult(
        gate, share, "pass" if share <= allowed else "fail", f"{100 * share:.3g} %, {basis}", built_in=True
    )


def failed_connections(unconnected: Counter[str]) -> GateResult:
    """Evaluate the built-in gate on users without a session; `unconnected` counts them by reason."""
    count = unconnected.total()
    text = f"{count} users could not connect: {unconnected.most_common(1)[0][0]}" if count else "every user connected"
    return GateResult(FAILED_CONNECTIONS, float(count), "fail" if count else "pass", text, built_in=True)


def torn_reads(answers: int, rows: int, checked: int) -> GateResult:
    """Evaluate the gate on torn reads: the number of answers with torn rows, of these rows, and of checked answers."""
    text = f"{answers} of {checked} answers had torn rows ({rows} in all)" if answers else "no answer had torn rows"
    return GateResult(TORN_READS, float(answers), "fail" if answers else "pass", text, built_in=True)


def server_deaths(why: str) -> GateResult:
    """Evaluate the built-in gate on the server; `why` describes its death, "" if it was alive at the end."""
    state: Literal["pass", "fail"] = "fail" if why else "pass"
    text = why or "the server was alive to the end"
    return GateResult(SERVER_DEATHS, float(bool(why)), state, text, built_in=True)
