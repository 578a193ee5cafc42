"""Writes expected.json: what Hugging Face transformers (jinja2) makes of the templates beside it and of those in
src/chat/builtin.rs. python3 -m venv v; v/bin/pip install transformers==5.23.0 jinja2==3.1.6; v/bin/python make.py"""

import datetime
import json
import pathlib
import re

import transformers.utils.chat_template_utils as utils

NOW = 1767323045
HERE = pathlib.Path(__file__).parent


class Clock(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return datetime.datetime.fromtimestamp(NOW, datetime.timezone.utc).replace(tzinfo=None)


utils.datetime = Clock
weather = {"type": "function", "function": {"name": "weather", "description": "Über <b>\"Wetter\"</b>", "parameters": {
    "type": "object", "properties": {"city": {"type": "string"}, "items": {"type": "array"}}, "required": ["city"]}}}
call = {"id": "abcdefgh1", "type": "function", "function": {"name": "weather", "arguments": {"city": "Zürich", "n": 1.5}}}
conversations = [
    {"messages": [{"role": "user", "content": "Hi <there>\n"}, {"role": "assistant", "content": " Hello "},
                  {"role": "user", "content": "And?", "thinking": "hm"}],
     "tools": None, "kwargs": {}, "add_generation_prompt": True},
    {"messages": [{"role": "system", "content": "Be  good."}, {"role": "user", "content": "Weather?"},
                  {"role": "assistant", "content": "", "reasoning": "I must look", "tool_calls": [call, call]},
                  {"role": "tool", "tool_call_id": "abcdefgh1", "name": "weather", "content": "21"},
                  {"role": "assistant", "content": "21 degrees."}],
     "tools": [weather], "kwargs": {"enable_thinking": False}, "add_generation_prompt": False},
]
specials = {"bos_token": "<s>", "eos_token": "</s>"}
templates = {p.name: p.read_bytes().decode() for p in sorted(HERE.glob("*.jinja"))}
rust = (HERE / "../../../src/chat/builtin.rs").read_text(encoding="utf-8")
for name, source in re.findall(r'const ([A-Z0-9]+): &str = r#"(.*?)"#;', rust, re.S):
    templates[name.lower()] = source
rows = []
for name, source in templates.items():
    for i, c in enumerate(conversations):
        row = {"template": name, "conversation": i}
        try:
            text, _ = utils.render_jinja_template(
                conversations=[c["messages"]], tools=c["tools"], chat_template=source,
                add_generation_prompt=c["add_generation_prompt"], **specials, **c["kwargs"])
            row["text"] = text[0]
        except Exception as e:
            row["error"] = str(e)
        rows.append(row)
out = {"now": NOW, "specials": specials, "conversations": conversations, "rows": rows}
(HERE / "expected.json").write_text(json.dumps(out, ensure_ascii=False, indent=0) + "\n", encoding="utf-8")
