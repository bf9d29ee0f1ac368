"""The simulated agent: a stand-in for a model in dress rehearsals. It is not evidence.

It sees a task as a model would, through the messages of a turn, and is a function of them: the same
conversation gives the same reply. What it knows beyond them, the gold edit of the task, it uses in
two ways only. It recognises a gold path when a tool result (or the prompt, in the oracle arm) shows
it, and it may replace lines of a gold file by gold lines once ``read_file`` has shown those lines.
So whether it solves a task depends on what the treatment's retrieval returned, and on one draw per
task that is the same for all treatments: SHA-256 of agent seed and task id against its competence.
Where the draw fails it makes a plausible wrong edit in the file that it found.

It speaks the vocabulary of the H arms: ``search list_files read_file edit_file create_file
delete_file run_tests submit``. Other tools with exactly one required text argument are used like
searches: for the whole statement where the argument is a query, for its best words where it is a
name; tools that ask for a path are left alone.
"""

import difflib
import functools
import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from schemas.base import Digest, Value

EDITS = ("edit_file", "create_file", "delete_file")

MAX_TURNS = 12
MAX_TOOL_CALLS = 12
"""Budgets where the conversation does not say what is left."""
MAX_SEARCHES = 5
CONTEXT_LINES = 3
"""Unchanged lines around a gold hunk that become part of `old`, more where it must be unique."""

NO_BRIEF = "I am a simulated agent and have not been told about this task, so I do nothing."
NO_TOOLS = "I am a simulated agent and can only act through the tools of the H arms."

STATEMENT = re.compile(r"^<statement>\n(.*?)\n</statement>$", re.DOTALL | re.MULTILINE)
LEFT = re.compile(r"\[left: (\d{1,6}) answers, (\d{1,6}) tool calls, (\d{1,6}) test runs\][^\[]*\Z")
HIT = re.compile(r"([^\s:`'\"()\[\]]+):(\d+)")
NUMBERED_LINE = re.compile(r"^ *(\d{1,9})\t(.*)$", re.MULTILINE)
WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(?:\.[A-Za-z_][A-Za-z0-9_]*)*")

_STOP_WORDS = """
a about add added adds after all allow allowed allows already also an and any are as at be
because been before being between both but by call called can cannot change changed changes
could currently do does doing done each error errors expected fail failed fails fix fixed fixes
following for from get gets getting give given gives has have having how if in instead into is
issue it its just like make makes may merge more must need needs new no not now of on only or
other our out over problem request result results return returned returns see set should since
so some such support supported than that the their them then there these they this those to too
under use used user users uses using value values want was way we were what when where which
while who will with without would you your
"""
STOP_WORDS = frozenset(_STOP_WORDS.split())

COMMENT = {".go": "//", ".js": "//", ".ts": "//", ".c": "//", ".h": "//"}


class GoldFile(Value):
    """One production file of the gold change; None where it does not exist on that side."""

    before: str | None
    after: str | None


class Brief(Value):
    """What the supervisor tells about one task, through the token-protected admin route."""

    statement: Digest
    """SHA-256 of the UTF-8 statement text that stands between the ``<statement>`` lines."""
    task: str
    gold: dict[str, GoldFile]


class AgentCall(Value):
    """A tool call of the agent; the server turns the arguments into JSON text."""

    name: str
    arguments: dict[str, Any]


class AgentReply(Value):
    content: str = ""
    reasoning: str = ""
    calls: tuple[AgentCall, ...] = ()


def statement_in(messages: Sequence[Mapping[str, Any]]) -> str | None:
    """The task statement: what stands between the two lines in the first user message."""
    for message in messages:
        if message.get("role") == "user":
            found = STATEMENT.search(_text(message))
            return found.group(1) if found else None
    return None


def find_brief(messages: Sequence[Mapping[str, Any]], briefs: Mapping[str, Brief]) -> Brief | None:
    """The brief of the statement in ``messages``, from briefs by statement digest."""
    statement = statement_in(messages)
    if statement is None:
        return None
    # A prompt template may have trimmed the statement's ends.
    for text in (statement, statement + "\n", statement.strip(), statement.strip() + "\n"):
        brief = briefs.get(hashlib.sha256(text.encode()).hexdigest())
        if brief is not None:
            return brief
    return None


def is_competent(seed: str, task: str, per_mille: int) -> bool:
    """The draw of one task: the same for every treatment, model turn and repeat."""
    digest = hashlib.sha256(f"{seed}\n{task}".encode()).digest()
    return int.from_bytes(digest[:8], "big") % 1000 < per_mille


def decide(
    messages: Sequence[Mapping[str, Any]],
    tools: Sequence[Mapping[str, Any]],
    brief: Brief | None,
    *,
    seed: str,
    competence_per_mille: int,
) -> AgentReply:
    """The reply to one turn. Never raises for what a conversation may contain."""
    if brief is None:
        return AgentReply(content=NO_BRIEF)
    offered = {
        function["name"]: function.get("parameters") or {}
        for tool in tools
        if isinstance(function := tool.get("function"), dict) and "name" in function
    }
    if not offered:
        return AgentReply(content=NO_TOOLS)
    seen = _read_conversation(messages)
    if any(call.name == "submit" for call in seen.calls):
        return AgentReply(content="The change is submitted.")

    competent = is_competent(seed, brief.task, competence_per_mille)
    turns_left, calls_left, tests_left = seen.left or (
        MAX_TURNS - seen.turns,
        MAX_TOOL_CALLS - len(seen.calls),
        1,
    )
    found = [path for path in sorted(brief.gold) if _names(path, seen.text)]
    edits = _edits(brief, found, seen, competent, room=max(1, calls_left - 2))
    edits = [call for call in edits if call.name in offered]
    edited = any(call.name in EDITS for call in seen.calls)

    # Near the end of a budget what can be done is done, then the cell is handed in.
    if turns_left <= 1 or calls_left <= 1:
        return _hand_in(brief, seed, offered, edited)
    if turns_left > 2 and calls_left > 2:
        reading = _next_read(brief, found, seen) if "read_file" in offered else None
        if reading is not None and calls_left > len(edits) + 1:
            path = reading.arguments["path"]
            return AgentReply(
                reasoning=f"{path} looks related to the statement. I have to see its code before "
                "I can judge what is wrong there.",
                calls=(reading,),
            )
        if _is_missing(brief, found, seen) and calls_left > len(edits) + 2 and turns_left > 3:
            search = _next_search(messages, offered, seen)
            if search is not None:
                shown = next(iter(search.arguments.values()), "the tree")
                return AgentReply(
                    reasoning=f"I do not know yet where this happens. The statement speaks of "
                    f"{shown!r}, so I look for it.",
                    calls=(search,),
                )
    if edits:
        return AgentReply(
            content="I change the code that I have read.",
            reasoning="I have seen the lines that matter; now I make the change.",
            calls=tuple(edits[: max(1, calls_left - 1)]),
        )
    tested = any(call.name == "run_tests" for call in seen.calls)
    if edited and not tested and "run_tests" in offered and calls_left > 1 and tests_left > 0:
        return AgentReply(
            reasoning="The change is made. The public tests tell whether it breaks something.",
            calls=(AgentCall(name="run_tests", arguments={}),),
        )
    return _hand_in(brief, seed, offered, edited)


def _hand_in(brief: Brief, seed: str, offered: Mapping[str, Any], edited: bool) -> AgentReply:
    """Submit; an agent that has changed nothing stops with text for every second task."""
    gives_up = not edited and is_competent(seed, f"gives up\n{brief.task}", 500)
    if "submit" not in offered or gives_up:
        return AgentReply(content="I could not find the place that has to change, so I stop here.")
    return AgentReply(
        reasoning="There is nothing left that I can do within the budget.",
        calls=(AgentCall(name="submit", arguments={}),),
    )


# ---- what the conversation has shown -------------------------------------------------------------


class _Seen:
    """Turns used, calls made, all text that came back, lines that read_file showed."""

    def __init__(self) -> None:
        self.turns = 0
        self.calls: list[AgentCall] = []
        self.text = ""
        self.lines: dict[str, dict[int, str]] = {}
        self.hits: dict[str, list[int]] = {}
        self.left: tuple[int, int, int] | None = None
        """Answers, tool calls and test runs, where the arm says what is left."""


def _read_conversation(messages: Sequence[Mapping[str, Any]]) -> _Seen:
    seen = _Seen()
    texts: list[str] = []
    by_id: dict[str, AgentCall] = {}
    waiting: list[AgentCall] = []
    for message in messages:
        text = _text(message)
        if message.get("role") == "assistant":
            seen.turns += 1
            waiting = []
            calls = message.get("tool_calls")
            for call in calls if isinstance(calls, list) else ():
                parsed = _call(call)
                if parsed is not None:
                    seen.calls.append(parsed)
                    waiting.append(parsed)
                    by_id[str(call.get("id", ""))] = parsed
        else:
            texts.append(text)
            left = LEFT.search(text)
            if left is not None:
                answers, tool_calls, test_runs = map(int, left.groups())
                seen.left = (answers, tool_calls, test_runs)
            for path, number in HIT.findall(text):
                seen.hits.setdefault(path.removeprefix("./"), []).append(int(number[:9]))
            answered = by_id.pop(str(message.get("tool_call_id", "")), None)
            if answered is None and message.get("role") == "tool" and waiting:
                answered = waiting[0]
            if answered in waiting:
                waiting.remove(answered)
            if answered is not None and answered.name == "read_file":
                shown = seen.lines.setdefault(str(answered.arguments.get("path")), {})
                shown.update((int(number), line) for number, line in NUMBERED_LINE.findall(text))
    seen.text = "\n".join(texts)
    return seen


def _names(path: str, text: str) -> bool:
    """Whether ``text`` names the path: as a whole, not as the end or beginning of a longer one."""
    pattern = rf"(?<![\w.-])(?<!\w/)(?<!\.\./){re.escape(path)}(?![\w/-])(?!\.\w)"
    return re.search(pattern, text) is not None


def _names_folder(folder: str, text: str) -> bool:
    return re.search(rf"(?<![\w.-])(?<!\w/){re.escape(folder)}/", text) is not None


def _is_near(path: str, found: Sequence[str], seen: _Seen) -> bool:
    """Whether a file that gold creates may be created: a gold file or its folder was shown."""
    folder = path.rpartition("/")[0]
    return bool(found) or (folder != "" and _names_folder(folder, seen.text))


def _is_missing(brief: Brief, found: Sequence[str], seen: _Seen) -> bool:
    """Whether there is something left to look for."""
    return any(
        path not in found if gold.before is not None else not _is_near(path, found, seen)
        for path, gold in brief.gold.items()
    )


def _call(call: Any) -> AgentCall | None:
    """A tool call out of the history, or None where it is not one of ours."""
    try:
        function = call["function"]
        arguments = json.loads(function["arguments"])
        return AgentCall(name=str(function["name"]), arguments=dict(arguments))
    except (KeyError, TypeError, ValueError):
        return None


def _text(message: Mapping[str, Any]) -> str:
    """The text of a message, whose content is a string or a list of parts."""
    content = message.get("content")
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return "\n".join(str(part.get("text", "")) for part in content if isinstance(part, dict))
    return ""


# ---- searching -----------------------------------------------------------------------------------


def search_terms(statement: str) -> list[str]:
    """Words of the statement to look for, best first: what looks like an identifier, then long
    words, then the order of first use."""
    first_use: dict[str, int] = {}
    for match in WORD.finditer(statement):
        word = match.group()
        if len(word) > 2 and word.lower() not in STOP_WORDS:
            first_use.setdefault(word, match.start())

    def rank(word: str) -> tuple[int, int, int]:
        looks_like_code = "_" in word or "." in word or bool(re.search(r"[a-z0-9][A-Z]", word))
        return (-looks_like_code, -min(len(word), 12), first_use[word])

    terms: list[str] = []
    for word in sorted(first_use, key=rank):
        last = word.rpartition(".")[2]  # a dotted name is rarely written out where it is defined
        if last not in terms and len(last) > 2:
            terms.append(last)
    return terms


def _next_search(
    messages: Sequence[Mapping[str, Any]], offered: Mapping[str, Any], seen: _Seen
) -> AgentCall | None:
    """The next query that was not made yet, or None when the ideas or the patience are used up."""
    terms = search_terms(statement_in(messages) or "")
    queries: list[AgentCall] = []
    if "search" in offered:
        properties = offered["search"].get("properties", {})
        if "mode" in properties:
            alternatives = "|".join(re.escape(term) for term in terms[:4])
            plan = zip(
                ("substring", "regex", "exact", "substring"),
                [*terms[:1], alternatives, *terms[1:3]],
                strict=False,
            )
            queries += [
                AgentCall(name="search", arguments={"query": query, "mode": mode})
                for mode, query in plan
                if query
            ]
        else:
            plain = [" ".join(terms[:6]), *terms[:3]]
            queries += [AgentCall(name="search", arguments={"query": q}) for q in plain if q]
    arguments = {name: _text_argument(name, offered[name]) for name in sorted(offered)}
    names = [name for name, argument in arguments.items() if argument not in ("", "query", "path")]
    for name, term in zip(names, terms, strict=False):
        queries.insert(1, AgentCall(name=name, arguments={arguments[name]: term}))
    statement = statement_in(messages) or ""
    for name, argument in arguments.items():
        if argument == "query" and statement:
            queries.insert(0, AgentCall(name=name, arguments={argument: statement}))
    if "list_files" in offered:
        queries.append(AgentCall(name="list_files", arguments={}))
    made = [call for call in seen.calls if call in queries]
    if len(made) >= MAX_SEARCHES:
        return None
    return next((query for query in queries if query not in seen.calls), None)


def _text_argument(name: str, parameters: Mapping[str, Any]) -> str:
    """The one required text argument of a tool that is not in the vocabulary; else empty."""
    known = ("search", "list_files", "read_file", "edit_file", "create_file", "delete_file")
    required = parameters.get("required") or []
    properties = parameters.get("properties") or {}
    if name in known or len(required) != 1:
        return ""
    (argument,) = required
    is_text = isinstance(properties.get(argument), dict) and (
        properties[argument].get("type") == "string"
    )
    return str(argument) if is_text else ""


# ---- reading -------------------------------------------------------------------------------------


def _next_read(brief: Brief, found: Sequence[str], seen: _Seen) -> AgentCall | None:
    """Read a found file: from its top, then around search hits, then on from what was shown."""
    for path in found:
        gold = brief.gold[path]
        if gold.before is None or gold.after is None or _touched(path, seen):
            continue
        lines = gold.before.split("\n")
        shown = _shown(lines, seen.lines.get(path, {}))
        if not any(hunk.missing(shown, len(lines)) for hunk in _hunks(gold.before, gold.after)):
            continue
        if path not in seen.lines:
            return AgentCall(name="read_file", arguments={"path": path})
        read = [call for call in seen.calls if call.name == "read_file"]
        starts = [
            *(max(1, line - 20) for line in seen.hits.get(path, ()) if line not in shown),
            max(shown, default=0) + 1,
        ]
        for start in starts:
            call = AgentCall(name="read_file", arguments={"path": path, "start_line": start})
            if start <= len(lines) and call not in read:
                return call
    return None


def _shown(lines: Sequence[str], numbered: Mapping[int, str]) -> set[int]:
    """Line numbers that a result really showed: same number and same text, possibly cut."""
    shown = set()
    for number, text in numbered.items():
        if 1 <= number <= len(lines):
            line = lines[number - 1].removesuffix("\r")
            if text.rstrip("\r") == line or (len(text) >= 80 and line.startswith(text[:80])):
                shown.add(number)
    if lines[-1] == "" and len(lines) - 1 in shown:
        shown.add(len(lines))  # what follows the last newline is no line of its own
    return shown


def _touched(path: str, seen: _Seen) -> bool:
    return any(call.name in EDITS and call.arguments.get("path") == path for call in seen.calls)


# ---- editing -------------------------------------------------------------------------------------


class _Hunk:
    """Lines ``start`` to ``end`` (from 0, end exclusive) become ``new``, inside a margin of
    context; all as lists of lines of the whole file."""

    def __init__(self, start: int, end: int, new: list[str]) -> None:
        self.start, self.end, self.new = start, end, new

    def missing(self, shown: set[int], total: int) -> bool:
        """Whether a line that it replaces, or the place where it inserts, was not shown."""
        first = min(self.start, total - 1)
        return not all(line + 1 in shown for line in range(first, max(self.end, first + 1)))


@functools.lru_cache(maxsize=64)
def _changed_regions(before: str, after: str) -> tuple[tuple[int, int, int, int], ...]:
    matcher = difflib.SequenceMatcher(None, before.split("\n"), after.split("\n"), autojunk=False)
    return tuple(region for tag, *region in matcher.get_opcodes() if tag != "equal")  # type: ignore[misc]


def _hunks(before: str, after: str, join: int = 2 * CONTEXT_LINES) -> list[_Hunk]:
    """Changed regions, joined where at most ``join`` unchanged lines lie between them."""
    regions: list[tuple[int, int, int, int]] = []
    for i1, i2, j1, j2 in _changed_regions(before, after):
        if regions and i1 - regions[-1][1] <= join:
            regions[-1] = (regions[-1][0], i2, regions[-1][2], j2)
        else:
            regions.append((i1, i2, j1, j2))
    new = after.split("\n")
    return [_Hunk(i1, i2, new[j1:j2]) for i1, i2, j1, j2 in regions]


def _edits(
    brief: Brief, found: Sequence[str], seen: _Seen, competent: bool, room: int
) -> list[AgentCall]:
    """Every edit that may be made with what was shown, at most about ``room`` calls. A file is
    edited in one go: one that has been touched is left alone."""
    calls: list[AgentCall] = []
    existing = [path for path in found if brief.gold[path].before is not None]
    created = [path for path in sorted(brief.gold) if brief.gold[path].before is None]
    room_per_file = max(1, (room - len(created)) // max(1, len(existing)))
    for path in existing:
        gold = brief.gold[path]
        assert gold.before is not None
        if gold.after is None and competent and not _touched(path, seen):
            calls.append(AgentCall(name="delete_file", arguments={"path": path}))
        if path not in seen.lines or gold.after is None or _touched(path, seen):
            continue
        if gold.before == "":
            content = gold.after if competent else f"{_comment(path)} placeholder\n"
            arguments = {"path": path, "old": "", "new": content}
            calls.append(AgentCall(name="edit_file", arguments=arguments))
            continue
        shown = _shown(gold.before.split("\n"), seen.lines[path])
        if not competent:
            return _wrong_edit(path, gold.before, gold.after, shown)
        joins = (2 * CONTEXT_LINES, 20, 80, len(gold.before))
        every = [_hunks(gold.before, gold.after, join) for join in joins]
        hunks = next((some for some in every if len(some) <= room_per_file), every[-1])
        calls += _edit_calls(path, gold.before, hunks, shown)
    for path in created:
        if _is_near(path, found, seen) and not _touched(path, seen):
            gold_text = brief.gold[path].after or ""
            content = gold_text if competent else f"{_comment(path)} placeholder\n"
            calls.append(
                AgentCall(name="create_file", arguments={"path": path, "content": content})
            )
    return calls


def _edit_calls(path: str, before: str, hunks: Sequence[_Hunk], shown: set[int]) -> list[AgentCall]:
    """edit_file calls for the hunks whose lines were shown, each unique in the file as the calls
    before it leave it. Hunks are applied from the bottom, so line numbers stay right."""
    calls: list[AgentCall] = []
    lines = before.split("\n")
    total = len(lines)
    for hunk in sorted(hunks, key=lambda one: -one.start):
        if hunk.missing(shown, total):
            continue
        text = "\n".join(lines)
        for margin in range(CONTEXT_LINES, len(lines) + CONTEXT_LINES):
            first, last = hunk.start, hunk.end
            while first > 0 and hunk.start - first < margin and first in shown:
                first -= 1
            while last < len(lines) and last - hunk.end < margin and last + 1 in shown:
                last += 1
            old = "\n".join(lines[first:last])
            if old and text.find(old) == text.rfind(old):
                new = "\n".join(lines[first : hunk.start] + hunk.new + lines[hunk.end : last])
                calls.append(
                    AgentCall(name="edit_file", arguments={"path": path, "old": old, "new": new})
                )
                lines[hunk.start : hunk.end] = hunk.new
                break
            if hunk.start - first < margin and last - hunk.end < margin:
                break  # no more context was shown: this edit cannot be made unique
    return calls


def _wrong_edit(path: str, before: str, after: str, shown: set[int]) -> list[AgentCall]:
    """A remark where the change belongs: it parses, and it mends nothing."""
    lines = before.split("\n")
    hunks = [hunk for hunk in _hunks(before, after) if not hunk.missing(shown, len(lines))]
    for at in [*(hunk.start for hunk in hunks), *(line - 1 for line in sorted(shown)[:1])]:
        line = lines[at] if at < len(lines) else ""
        indent = line[: len(line) - len(line.lstrip())]
        remark = f"{indent}{_comment(path)} Checked: this part behaves as intended."
        calls = _edit_calls(path, before, [_Hunk(at, at, [remark])], shown)
        if calls:
            return calls
    return []


def _comment(path: str) -> str:
    return COMMENT.get(path[path.rfind(".") :] if "." in path else "", "#")
