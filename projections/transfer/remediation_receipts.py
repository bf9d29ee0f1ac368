"""What a remediation's receipt must hold: runs after the change, with everything else unchanged.

Asked when a remediation is to be closed, and again by the audit of transfer studies.
"""

from collections.abc import Collection, Iterator, Mapping
from typing import Any

import msgspec

from projections.fold import ReadArtifact
from projections.transfer.evidence import RunEvidence
from projections.transfer.remediations import Remediation
from projections.transfer.scores import TransferScores
from schemas.events.transfer import SystemDescribed
from schemas.transfer.family import LAYERS, Family


def missing_to_close(
    read: ReadArtifact, scores: TransferScores, remediation: Remediation
) -> Iterator[str]:
    """What keeps a remediation from being closed, one reason a line."""
    if remediation.changed is None:
        yield "the change (`ledger transfer remediation change`)"
        return
    if remediation.rerun is None:
        yield "the choice of runs (`ledger transfer remediation rerun`)"
        return
    failing = scores.evidence[remediation.opened.cell]
    changed = remediation.changed
    shown_before = layers_of(read, failing) if changed.attributed else {}
    differing = [x for x in LAYERS if changed.before.get(x) != changed.after.get(x)]
    if changed.attributed and differing != [changed.layer]:
        yield f"a change of {changed.layer} alone"
    denied = _contradicted(changed.before, shown_before)
    if denied:
        yield f"the {', '.join(denied)} before the change as {remediation.opened.cell} shows"
    before = {family.family_id: family for family in failing.suite.families}
    for cell in remediation.rerun.cells:
        score = scores.runs.get(cell)
        if score is None or score.result == "void":
            yield f"the run {cell} (`ledger run`)"
            continue
        if score.started < remediation.changed_at:
            yield f"a run of {cell} after the change (record {remediation.changed_at})"
            continue
        evidence = scores.evidence[cell]
        altered = _differing(before.get(evidence.family.family_id), evidence)
        if altered:
            yield f"{cell} with unchanged {', '.join(altered)}"
        if changed.attributed:
            other = _contradicted(changed.after, layers_of(read, evidence), must_show=shown_before)
            if other:
                yield f"{cell} with the recorded {', '.join(other)} of the change"


def _contradicted(
    recorded: Mapping[str, str], shown: Mapping[str, str], must_show: Collection[str] = ()
) -> list[str]:
    """Layers of a receipt that a run shows otherwise, or does not show though the failing run did.
    A layer that no run shows is as the receipt says."""
    return [
        layer
        for layer in LAYERS
        if (layer in shown or layer in must_show) and recorded.get(layer) != shown.get(layer)
    ]


def _differing(before: Family | None, evidence: RunEvidence) -> list[str]:
    """What is not as it was when the failing run began."""
    case = evidence.case
    old = next((c for c in before.cases if c.case_id == case.case_id), None) if before else None
    if before is None or old is None:
        return ["prompt", "fixture", "predicate"]
    pairs: Mapping[str, tuple[Any, Any]] = {
        "prompt": (old.prompt, case.prompt),
        "fixture": (before.fixture, evidence.family.fixture),
        "predicate": ((old.expected, old.prohibited), (case.expected, case.prohibited)),
    }
    return [name for name, (one, other) in pairs.items() if one != other]


def layers_of(read: ReadArtifact, evidence: RunEvidence) -> dict[str, str]:
    """Digests by layer as the system described itself in a run; those that it can show."""
    described = evidence.last(SystemDescribed)
    layers: dict[str, str] = {}
    for ref in (described[1].memory, described[1].driver) if described else ():
        manifest = msgspec.json.decode(read(ref))
        shown = manifest.get("layers") if isinstance(manifest, dict) else None
        if isinstance(shown, dict):
            layers |= {str(name): str(digest) for name, digest in shown.items()}
    return {name: layers[name] for name in LAYERS if name in layers}
