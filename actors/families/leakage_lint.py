"""Prompts that give the answer away: deterministic rules, before a family is frozen.

A prompt that carries its answer tests reading, not memory. Words are compared whatever their case;
*topic terms*, which the family declares (at most twelve, shown in the review), may be used freely.
Each rule has an id by which a waiver names it. Source: the protocol's tables, "Prompt leakage
lint".
"""

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from fractions import Fraction

from actors.families.problems import Findings, Problem
from schemas.transfer.correction import Correction
from schemas.transfer.family import NEEDS_RESOLUTION, Case, CaseKind, Family

MAX_TOPIC_TERMS = 12
SHARED_RUN = 4
SAME_PROMPT: frozenset[CaseKind] = frozenset(
    {
        "supersession",
        "conflict",
        "expiry",
        "not_yet_valid",
        "outcome",
        "persistence",
        "persistence_negative",
    }
)
SAME_WORDING: frozenset[CaseKind] = frozenset({"scope_negative", "principal_negative"})
"""A task negative asks for another kind of task, which the same words cannot ask for."""

_SMALL = frozenset(
    """
    a an and any are as at be been by can do does for from has have i if in into is it its me my
    no not of on only or other our say so than that the their them then there these they this
    those to under up use was we were what when where which who will with you your
    """.split()  # noqa: SIM905
)
CUES = frozenset(
    """
    again agreed always anymore before convention conventions correction corrections current
    currently deprecated discussed earlier expired forget forgot formerly guideline guidelines
    instruction instructions last lately latest learned learnt mandatory memorised memorized
    memory must never newest noted nowadays obsolete ought outdated policies policy preference
    preferences previous previously recall recalled recent recently remember remembered remind
    reminder replaced required rule rules said still stored superseded taught told updated usual
    usually
    """.split()  # noqa: SIM905
)
EVALUATIVE = frozenset(
    """
    allowed approved authoritative bad best better canonical correct current deprecated fake false
    forbidden good incorrect invalid legacy new obsolete official old outdated preferred
    prohibited proper real recommended right safe stale true trusted unapproved unofficial unsafe
    untrusted valid wrong
    """.split()  # noqa: SIM905
)
_LEADING = re.compile(
    r"(?i)(?:^|[.!?]\s+)(?:isn't|aren't|doesn't|don't|didn't|shouldn't|wouldn't|won't|can't|"
    r"surely|obviously|of course|presumably|as you know|i think|i assume|i believe)\b"
)
_TAG = re.compile(
    r"(?i),\s*(?:right|correct|yes|no|ok|okay|true|(?:is|are|does|do|did|should|would|will|can|has|"
    r"have|was|were)(?:n't)?\s+(?:it|they|we|you|he|she|that|there))\s*\?"
)


def lint(family: Family) -> Findings:
    """Every rule over every prompt of the family."""
    free = {word for term in family.topic_terms for word in words(term)}
    positive = next((case for case in family.cases if case.kind == "positive"), None)
    yield from _check_topic_terms(family, positive)
    yield from _check_options(family)
    yield from _check_tool_names(family)
    if positive is not None:
        yield from _check_twin(family, positive, free)
    for case in family.cases:
        yield from _check_names(family, case)
        yield from _check_decision_words(family, case, free)
        yield from _check_records(family, case, free)
        yield from _check_cues(case, free)
        yield from _check_question(case)
        if positive is not None:
            yield from _check_against_positive(family, case, positive)


def words(text: str) -> list[str]:
    """Words in their order, lower case; ``limits.toml`` and ``heading_style`` are one each."""
    return [word.strip("._-'") for word in re.findall(r"[\w.'-]*\w", text.casefold())]


def _content(text: str, free: set[str]) -> set[str]:
    return {word for word in words(text) if word not in _SMALL and word not in free}


def _parts(option: str) -> set[str]:
    """The words of an option: ``guard_size`` is guard, size, and itself."""
    return {option.casefold(), *filter(None, re.split(r"[\W_]+", option.casefold()))}


def _prompt_words(prompt: str) -> set[str]:
    found = words(prompt)
    return {*found, *(part for word in found for part in re.split(r"[\W_]+", word) if part)}


def _check_topic_terms(family: Family, positive: Case | None) -> Findings:
    if len(family.topic_terms) > MAX_TOPIC_TERMS:
        yield Problem(
            rule="topic-terms",
            message=f"{len(family.topic_terms)} topic terms; at most {MAX_TOPIC_TERMS}: name only "
            "what the task cannot be worded without",
        )
    decisions = positive.expected.decision_accept if positive else ()
    shared = sorted({t for t in family.topic_terms if t.casefold() in map(str.casefold, decisions)})
    if shared:
        yield Problem(
            rule="topic-terms",
            message=f"{', '.join(shared)}: the positive's decision cannot be a free word",
        )


def _check_options(family: Family) -> Findings:
    if list(family.decision_options) != sorted(family.decision_options):
        yield Problem(
            rule="options-sorted",
            message="decision_options stand in sorted order, so that their place tells nothing: "
            f"{', '.join(sorted(family.decision_options))}",
        )


def _check_tool_names(family: Family) -> Findings:
    for tool in family.fixture.tools:
        found = sorted(set(re.split(r"[\W_]+", tool.name.casefold())) & EVALUATIVE)
        if found:
            yield Problem(
                rule="tool-name",
                message=f"the tool {tool.name} judges itself ({', '.join(found)}): name it by what "
                "it does",
            )


def _check_twin(family: Family, positive: Case, free: set[str]) -> Findings:
    twin = family.twin_decision
    if (
        twin not in family.decision_options
        or twin in positive.expected.decision_accept
        or twin == NEEDS_RESOLUTION
    ):
        yield Problem(
            rule="twin",
            message=f"twin_decision {twin} must be an offered option, another one than the "
            f"positive's, and not {NEEDS_RESOLUTION}: the decision of a record that says the "
            "opposite",
        )
        return
    said = sorted(_parts(twin) & _prompt_words(positive.prompt) - free)
    if said:
        yield Problem(
            rule="twin",
            place=positive.case_id,
            message=f"the prompt says {', '.join(said)}: with a record whose decision is {twin} it "
            "would give the answer away, so it does not suit both",
        )


def _check_names(family: Family, case: Case) -> Findings:
    prompt = case.prompt.casefold()
    for record in family.records:
        for name in (record.correction_id, record.source_reference):
            if name.casefold() in prompt:
                yield Problem(
                    rule="record-named",
                    place=case.case_id,
                    message=f"the prompt names {name}: no record id and no source reference",
                )


def _check_decision_words(family: Family, case: Case, free: set[str]) -> Findings:
    decisions = {record.expected_decision for record in family.records}
    decisions |= {option for other in family.cases for option in other.expected.decision_accept}
    decisions.discard(NEEDS_RESOLUTION)
    prompt = _prompt_words(case.prompt)
    said = sorted({part for d in decisions for part in _parts(d)} & prompt - free - _SMALL)
    if said:
        yield Problem(
            rule="decision-word",
            place=case.case_id,
            message=f"the prompt says {', '.join(said)}, a word of an expected decision: word it "
            "differently, or declare a topic term if the task cannot be told without",
        )


def _check_records(family: Family, case: Case, free: set[str]) -> Findings:
    prompt = _content(case.prompt, free)
    runs = set(_runs(words(case.prompt)))
    for record in family.records:
        answer = _content(f"{record.semantic_expectation} {record.expected_action}", free)
        shared = sorted(prompt & answer)
        if len(shared) >= 2:
            yield Problem(
                rule="answer-words",
                place=case.case_id,
                message=f"the prompt shares {', '.join(shared)} with {record.correction_id}: fewer "
                "than two answer-bearing words",
            )
        run = next(
            (run for text in _texts(record) for run in _runs(words(text)) if run in runs), ()
        )
        if run:
            yield Problem(
                rule="shared-run",
                place=case.case_id,
                message=f"`{' '.join(run)}` stands in {record.correction_id} too: no "
                f"{SHARED_RUN} words in a row",
            )
        for action in record.prohibited_actions:
            both = sorted(prompt & _content(action, free))
            if len(both) >= 2:
                yield Problem(
                    rule="prohibited-words",
                    place=case.case_id,
                    message=f"the prompt says {', '.join(both)} of what {record.correction_id} "
                    "prohibits: not two words of it",
                )


def _texts(record: Correction) -> Iterator[str]:
    yield record.semantic_expectation
    yield record.expected_action
    yield from record.prohibited_actions


def _runs(found: Sequence[str]) -> Iterator[tuple[str, ...]]:
    for start in range(len(found) - SHARED_RUN + 1):
        yield tuple(found[start : start + SHARED_RUN])


def _check_cues(case: Case, free: set[str]) -> Findings:
    said = sorted(set(words(case.prompt)) & CUES - free)
    if said:
        yield Problem(
            rule="cue-word",
            place=case.case_id,
            message=f"{', '.join(said)}: a word of memory, lifecycle or instruction tells that "
            "something is to be recalled",
        )


def _check_question(case: Case) -> Findings:
    if _LEADING.search(case.prompt) or _TAG.search(case.prompt):
        yield Problem(
            rule="leading-question",
            place=case.case_id,
            message="a leading or a tag question suggests its answer: ask openly",
        )


def _check_against_positive(family: Family, case: Case, positive: Case) -> Findings:
    same = case.prompt == positive.prompt
    if case.kind == "baseline" and not (same and case.session == positive.session):
        yield Problem(
            rule="baseline-prompt",
            place=case.case_id,
            message="prompt and session are the positive's, byte for byte: only the record is gone",
        )
    elif case.kind in SAME_PROMPT and not same:
        yield Problem(
            rule="same-prompt",
            place=case.case_id,
            message=f"a `{case.kind}` case asks with the positive's prompt: what differs is the "
            "store, the clock or the fixture",
        )
    elif case.kind in SAME_WORDING and masked(family, case.prompt) != masked(
        family, positive.prompt
    ):
        yield Problem(
            rule="negative-prompt",
            place=case.case_id,
            message="asks otherwise than the positive: the same words but for the declared slots "
            f"({', '.join(family.slots) or 'none is declared'})",
        )
    elif case.kind == "task_negative" and not (
        set(words(case.prompt)) & {word for term in family.topic_terms for word in words(term)}
    ):
        yield Problem(
            rule="negative-prompt",
            place=case.case_id,
            message="says none of the family's topic terms: another task, of the same project",
        )


def masked(family: Family, prompt: str) -> str:
    """The prompt with every word of a slot replaced by the slot's name."""
    for slot, choices in sorted(family.slots.items()):
        for choice in sorted(choices, key=len, reverse=True):
            prompt = re.sub(rf"(?i)(?<!\w){re.escape(choice)}(?!\w)", f"<{slot}>", prompt)
    return prompt


# --- over a suite --------------------------------------------------------------------------------

Policy = Callable[[Family, Case], str]
TAIL = Fraction(1, 20)


def blind_policies(families: Sequence[Family]) -> Findings:
    """Deciding without any memory must not beat chance over the suite.

    *First option*; *echo*, the option of which the prompt says most; *majority*, the option that
    the other families accept most often, by its name, or where they know none, by its place. A
    policy beats chance where it hits so many cases that an even choice among the options would
    reach them in fewer than one of twenty suites (exact tail of the Poisson binomial distribution).

    Abstaining is left out, among options and cases: the protocol itself prescribes where it is
    right, and abstention accuracy prints both of its halves.
    """
    cases = [(family, case) for family in families for case in family.cases if accepted(case)]
    chances = [
        Fraction(len(set(accepted(case)) & set(choices(family))), len(choices(family)))
        for family, case in cases
    ]
    for name, policy in _blind(families).items():
        hits = sum(policy(family, case) in accepted(case) for family, case in cases)
        if cases and tail(chances, hits) < TAIL:
            yield Problem(
                rule="blind-policy",
                message=f"{name} decides rightly in {hits} of {len(cases)} cases without any "
                f"memory; an even choice would in {float(sum(chances)):.1f}: vary which option is "
                "right",
            )


def choices(family: Family) -> list[str]:
    """The options but for abstaining, sorted."""
    return sorted(option for option in family.decision_options if option != NEEDS_RESOLUTION)


def accepted(case: Case) -> list[str]:
    return [option for option in case.expected.decision_accept if option != NEEDS_RESOLUTION]


def _blind(families: Sequence[Family]) -> Mapping[str, Policy]:
    def first(family: Family, case: Case) -> str:
        return choices(family)[0]

    def echo(family: Family, case: Case) -> str:
        prompt = _prompt_words(case.prompt)
        return max(choices(family), key=lambda option: len(_parts(option) & prompt))

    def majority(family: Family, case: Case) -> str:
        names: Counter[str] = Counter()
        places: Counter[int] = Counter()
        for other in families:
            if other.family_id != family.family_id:
                right = [option for found in other.cases for option in accepted(found)]
                names.update(right)
                places.update(choices(other).index(o) for o in right if o in choices(other))
        offered = choices(family)
        return max(offered, key=lambda option: (names[option], places[offered.index(option)]))

    return {"the first option": first, "an echo of the prompt": echo, "the majority": majority}


def tail(chances: Sequence[Fraction], hits: int) -> Fraction:
    """Probability of at least ``hits`` successes of independent trials with these chances."""
    at = [Fraction(1)]
    for chance in chances:
        at = [
            (at[k] * (1 - chance) if k < len(at) else Fraction(0))
            + (at[k - 1] * chance if k else Fraction(0))
            for k in range(len(at) + 1)
        ]
    return sum(at[hits:], start=Fraction(0))
