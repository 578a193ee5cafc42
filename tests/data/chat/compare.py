"""Renders conversations with many templates, here and by Hugging Face transformers, and compares the bytes.

compare.py PROGRAM TEMPLATE...: PROGRAM is examples/chat_templates.rs. Exit 1 where anything differs that is not named below.
"""

import collections
import datetime as dt
import json
import os
import subprocess
import sys

os.environ["TRANSFORMERS_VERBOSITY"] = "error"
import transformers.utils.chat_template_utils as ctu

NOW = 1767323045  # 2026-01-02 03:04:05 UTC


class Clock(dt.datetime):
    @classmethod
    def now(cls, tz=None):
        return dt.datetime.fromtimestamp(NOW, dt.timezone.utc).replace(tzinfo=None)


ctu.datetime = Clock
weather = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": 'The weather <now> & "here" in München.',
        "parameters": {
            "type": "object",
            "properties": {
                "city": {"type": "string", "description": "A city"},
                "unit": {"type": "string", "enum": ["celsius", "fahrenheit"], "default": "celsius"},
                "days": {"type": ["integer", "null"], "description": "How many", "minimum": 1},
            },
            "required": ["city"],
        },
    },
}
order = {
    "type": "function",
    "function": {
        "name": "order",
        "description": "Order items.",
        "parameters": {
            "type": "object",
            "properties": {
                "items": {
                    "type": "array",
                    "items": {
                        "type": "object",
                        "properties": {"name": {"type": "string"}, "count": {"type": "integer"}},
                        "required": ["name"],
                    },
                },
                "price": {"type": "number"},
                "express": {"type": "boolean"},
                "where": {
                    "type": "object",
                    "properties": {"street": {"type": "string", "description": "The street"}},
                },
            },
            "required": ["items", "price"],
        },
    },
}
nothing = {
    "type": "function",
    "function": {"name": "ping", "description": "", "parameters": {"type": "object", "properties": {}}},
}


def call(name, args, id="abcdefgh1"):
    return {"id": id, "type": "function", "function": {"name": name, "arguments": args}}


S = {"role": "system", "content": "You are  helpful.\n Answer in 'short' \"lines\". "}
U = {"role": "user", "content": " Hi there! <b>2 < 3</b> & ünïcödé 日本 \n"}
A = {"role": "assistant", "content": "Hello\n\n- a\n- b "}
U2 = {"role": "user", "content": "What's up?\tTell me."}
AR = {"role": "assistant", "content": "It is 4.", "reasoning_content": "Two and two.\nSo four."}
AT = {"role": "assistant", "content": "<think>\nlet me see\n</think>\n\nIt is 5."}
TC = {"role": "assistant", "content": "", "tool_calls": [call("get_weather", {"city": "Zürich", "days": 3})]}
TCN = {"role": "assistant", "content": None, "tool_calls": [call("get_weather", {"city": "Paris"})]}
TCS = {
    "role": "assistant",
    "content": "",
    "tool_calls": [call("get_weather", '{"city": "Rom", "days": 1.5}')],
}
TC2 = {
    "role": "assistant",
    "content": "I look.",
    "reasoning_content": "two calls",
    "tool_calls": [
        call("get_weather", {"city": "A", "unit": None}, "abcdefgh1"),
        call(
            "order",
            {"items": [{"name": "x", "count": 2}], "price": 1e-05, "express": True, "where": {}},
            "abcdefgh2",
        ),
    ],
}
T = {"role": "tool", "tool_call_id": "abcdefgh1", "name": "get_weather", "content": '{"temp": 21.5}'}
T2 = {"role": "tool", "tool_call_id": "abcdefgh2", "name": "order", "content": "done"}
P = {"role": "user", "content": [{"type": "text", "text": "part one"}, {"type": "text", "text": " part two"}]}
PI = {"role": "user", "content": [{"type": "text", "text": "look"}, {"type": "image"}]}
tools = [weather, order, nothing]
conversations = {
    "one": ([U], None, {}),
    "system": ([S, U], None, {}),
    "turns": ([S, U, A, U2], None, {}),
    "turns without a system": ([U, A, U2, A, U2], None, {}),
    "ends with an answer": ([U, A], None, {}),
    "reasoning": ([S, U, AR, U2], None, {}),
    "reasoning in the text": ([U, AT, U2, AT], None, {}),
    "thinking on": ([S, U, AR, U2], None, {"enable_thinking": True, "thinking": True}),
    "thinking off": (
        [S, U, AR, U2],
        None,
        {"enable_thinking": False, "thinking": False, "reasoning_effort": "low"},
    ),
    "tools": ([S, U2], tools, {}),
    "tools without a system": ([U2], [weather], {}),
    "no tools": ([S, U2], [], {}),
    "a call": ([S, U2, TC, T], [weather], {}),
    "a call and an answer": ([S, U2, TC, T, AR, U], tools, {}),
    "a call without content": ([U2, TCN, T, A, U2], [weather], {}),
    "a call as text": ([U2, TCS, T], [weather], {}),
    "two calls": ([S, U2, TC2, T, T2], tools, {}),
    "two calls, thinking off": ([S, U2, TC2, T, T2, A, U], tools, {"enable_thinking": False}),
    "parts": ([S, P], None, {}),
    "image": ([PI], None, {}),
    "two users": ([U, U2], None, {}),
    "empty system": ([{"role": "system", "content": ""}, U], None, {}),
    "developer": ([{"role": "developer", "content": "Be good."}, U], tools, {}),
    "documents": ([U2], None, {"documents": [{"title": "T", "text": "x y", "content": "z"}]}),
}
specials = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>"}


def cases(templates):
    for path in templates:
        src = open(path, encoding="utf-8", newline="").read()
        for name, (messages, tls, kw) in conversations.items():
            for agp in (True, False):
                yield path, name, dict(
                    template=src,
                    specials=specials,
                    now=NOW,
                    messages=messages,
                    tools=tls,
                    kwargs=kw,
                    add_generation_prompt=agp,
                )


def theirs(c):
    try:
        kw = {**c["specials"], **c["kwargs"]}
        docs = kw.pop("documents", None)
        r, _ = ctu.render_jinja_template(
            conversations=[c["messages"]],
            tools=c["tools"],
            documents=docs,
            chat_template=c["template"],
            add_generation_prompt=c["add_generation_prompt"],
            **kw,
        )
        return {"text": r[0]}
    except Exception as e:
        return {"error": f"{type(e).__name__}: {e}"}


# Where transformers stops and we go on: Python does not iterate None, nor write a generator as JSON, and minijinja takes
# either for a list. The prompt is the one that the template means.
GOES_ON = ("'NoneType' object is not iterable", "Object of type generator is not JSON serializable")

# A text marked safe is one of markupsafe in Python, which escapes whatever is added to it, so that tools stand in the
# prompt as HTML. We add texts as they are.
MARKUP = {"meetkai-functionary-medium-v3.1.jinja"}


def first_difference(a, b):
    i = next((i for i, (x, y) in enumerate(zip(a, b)) if x != y), min(len(a), len(b)))
    return repr(a[max(0, i - 60) : i + 60]), repr(b[max(0, i - 60) : i + 60])


def main():
    program, templates = sys.argv[1], sys.argv[2:]
    rows = list(cases(templates))
    lines = "".join(json.dumps(c) + "\n" for _, _, c in rows)
    ran = subprocess.run([program], input=lines, capture_output=True, encoding="utf-8", check=True)
    ours = [json.loads(line) for line in ran.stdout.split("\n") if line]
    assert len(ours) == len(rows), (len(ours), len(rows))
    counts, used = collections.Counter(), set()
    for (path, name, c), o in zip(rows, ours):
        t, file = theirs(c), os.path.basename(path)
        if "text" in t and t == o:
            counts["equal"] += 1
            used.add(path)
        elif "error" in t and "error" in o:
            counts["refused by both"] += 1
        elif "error" in t and t["error"].endswith(GOES_ON):
            counts["refused by transformers alone, as named"] += 1
        elif file in MARKUP and "text" in t and "&#34;" in t["text"] and "text" in o:
            counts["escaped by transformers alone, as named"] += 1
        else:
            counts["different"] += 1
            print("different:", file, "|", name, "|", c["add_generation_prompt"])
            a, b = first_difference(t["text"], o["text"]) if "text" in t and "text" in o else (t, o)
            print("  theirs", str(a)[:300], "\n  ours  ", str(b)[:300])
    figures = ", ".join(f"{n} {what}" for what, n in counts.most_common())
    print(
        f"{len(templates)} templates ({len(used)} with equal prompts), {len(rows)} conversations: {figures}"
    )
    enough = len(used) >= 30
    if not enough:
        print("fewer than 30 templates")
    sys.exit(0 if enough and not counts["different"] else 1)


if __name__ == "__main__":
    main()
