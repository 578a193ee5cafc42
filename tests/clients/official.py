"""The official Python clients of OpenAI and Ollama, and curl, unmodified, against `isobit serve` with the story model.

    ISOBIT=target/release/isobit python tests/clients/official.py [PART OF A NAME]
"""

import json
import subprocess
import threading
import time
from importlib import metadata

import jsonschema
import ollama
import openai

from served import Checks, Server, equal

STORY = "Once upon a time"
CHAT = [{"role": "user", "content": "Tell me a story about a fox."}]
SCHEMA = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 12}, "age": {"type": "integer", "minimum": 0, "maximum": 99},
                   "kind": {"enum": ["fox", "dog"]}},
    "required": ["name", "age", "kind"],
    "additionalProperties": False,
}
# short, since the template writes all of it into the prompt, and the story model takes a token for nearly each letter
TOOLS = [{"type": "function", "function": {"name": name, "parameters": {
    "type": "object", "properties": {"days": {"enum": [1, 2, 7]}}, "required": ["days"], "additionalProperties": False,
}}} for name in ("sun", "sea")]


def raised(kind, call, status, part=""):
    try:
        call()
    except kind as e:
        equal(e.status_code, status, "status")
        assert part in str(e), f"{part!r} is not in {e}"
        return e
    raise AssertionError(f"no {kind.__name__}")


def settled(server):
    """Until nothing is at work; the seconds it took."""
    begun = time.monotonic()
    while any(server.texts().values()):
        assert time.monotonic() - begun < 5, server.texts()
        time.sleep(0.01)
    return time.monotonic() - begun


# chats


def chat_whole(c, model):
    a = c.chat.completions.create(model=model, messages=CHAT, max_tokens=24, seed=7)
    assert a.id.startswith("chatcmpl-") and a.object == "chat.completion" and a.system_fingerprint, a
    one = a.choices[0]
    equal((one.message.role, one.finish_reason, one.index), ("assistant", "length", 0))
    equal((a.usage.completion_tokens, a.usage.total_tokens), (24, 24 + a.usage.prompt_tokens))
    again = c.chat.completions.create(model=model, messages=CHAT, max_tokens=24, seed=7)
    equal(again.choices[0].message.content, one.message.content, "the same seed")
    other = c.chat.completions.create(model=model, messages=CHAT, max_tokens=24, seed=8)
    assert other.choices[0].message.content != one.message.content, "another seed gives another text"
    assert again.usage.prompt_tokens_details.cached_tokens >= 0
    developer = [{"role": "developer", "content": "Be short."}, {"role": "user", "content": [
        {"type": "text", "text": "Hello"}, {"type": "text", "text": " you"}]}]
    c.chat.completions.create(model=model, messages=developer, max_completion_tokens=3)


def chat_streamed(c, model):
    whole = c.chat.completions.create(model=model, messages=CHAT, max_tokens=24, seed=7).choices[0].message.content
    chunks = list(c.chat.completions.create(model=model, messages=CHAT, max_tokens=24, seed=7, stream=True,
                                            stream_options={"include_usage": True}))
    equal("".join(x.choices[0].delta.content or "" for x in chunks if x.choices), whole, "streamed is whole")
    equal(chunks[0].choices[0].delta.role, "assistant")
    equal([x.choices[0].finish_reason for x in chunks if x.choices and x.choices[0].finish_reason], ["length"])
    equal({x.id for x in chunks}, {chunks[0].id}, "one id")
    equal((chunks[-1].choices, chunks[-1].usage.completion_tokens), ([], 24))
    assert all(x.usage is None for x in chunks[:-1])
    plain = list(c.chat.completions.create(model=model, messages=CHAT, max_tokens=5, stream=True))
    assert all(x.usage is None and x.choices for x in plain), "usage that nobody asked for"
    # the client's own helper, which puts the parts together, and takes no text for whole that has not come to its end
    stop = {"stop": whole[-4:]}
    with c.chat.completions.stream(model=model, messages=CHAT, max_tokens=24, seed=7, **stop) as stream:
        for _ in stream:
            pass
        equal(stream.get_final_completion().choices[0].message.content, whole[:whole.index(whole[-4:])], "the helper's text")


def chat_many(c, model):
    a = c.chat.completions.create(model=model, messages=CHAT, max_tokens=12, seed=7, n=3)
    equal([x.index for x in a.choices], [0, 1, 2])
    equal(a.usage.completion_tokens, 36)
    texts = [x.message.content for x in a.choices]
    assert len(set(texts)) == 3, texts
    streamed = ["", "", ""]
    for x in c.chat.completions.create(model=model, messages=CHAT, max_tokens=12, seed=7, n=3, stream=True):
        streamed[x.choices[0].index] += x.choices[0].delta.content or ""
    equal(streamed, texts)
    one = c.chat.completions.create(model=model, messages=CHAT, max_tokens=12, seed=8)
    equal(one.choices[0].message.content, texts[1], "the second text is that of the next seed")


def chat_logprobs(c, model):
    a = c.chat.completions.create(model=model, messages=CHAT, max_tokens=8, temperature=0, logprobs=True, top_logprobs=3)
    one = a.choices[0]
    equal(len(one.logprobs.content), 8)
    for t in one.logprobs.content:
        equal(len(t.top_logprobs), 3)
        assert t.logprob <= 0 and t.top_logprobs[0].token == t.token, "greedy takes the likeliest"
        equal(sorted((x.logprob for x in t.top_logprobs), reverse=True), [x.logprob for x in t.top_logprobs])
    equal(b"".join(bytes(t.bytes) for t in one.logprobs.content).decode(), one.message.content)
    stream = c.chat.completions.create(model=model, messages=CHAT, max_tokens=8, temperature=0, logprobs=True,
                                       top_logprobs=3, stream=True)
    tokens = [t for x in stream for y in x.choices if y.logprobs for t in y.logprobs.content]
    equal(tokens, one.logprobs.content)


def chat_stop(c, model):
    whole = c.chat.completions.create(model=model, messages=CHAT, max_tokens=40, seed=7).choices[0].message.content
    word = whole[len(whole) // 2:len(whole) // 2 + 4]
    before = whole[:whole.index(word)]
    for stop in (word, ["never to be seen", word]):
        a = c.chat.completions.create(model=model, messages=CHAT, max_tokens=40, seed=7, stop=stop).choices[0]
        equal((a.message.content, a.finish_reason), (before, "stop"))
        stream = c.chat.completions.create(model=model, messages=CHAT, max_tokens=40, seed=7, stop=stop, stream=True)
        equal("".join(x.choices[0].delta.content or "" for x in stream), before, "streamed up to the stop string")


def chat_sampling(c, model):
    for extra in ({"presence_penalty": 1.5, "frequency_penalty": 0.5}, {"logit_bias": {"5": -100}}, {"top_p": 0.5}):
        c.chat.completions.create(model=model, messages=CHAT, max_tokens=6, **extra)
    a = c.chat.completions.create(model=model, messages=CHAT, max_tokens=6, extra_body={
        "top_k": 4, "min_p": 0.1, "mirostat": 2, "dry_multiplier": 0.8, "xtc_probability": 0.2})
    assert a.timings["predicted_n"] == 6, a


# structured output


def schema(c, model):
    wanted = {"type": "json_schema", "json_schema": {"name": "animal", "schema": SCHEMA, "strict": True}}
    for seed in range(5):
        a = c.chat.completions.create(model=model, messages=CHAT, seed=seed, max_tokens=200, response_format=wanted)
        equal(a.choices[0].finish_reason, "stop")
        jsonschema.validate(json.loads(a.choices[0].message.content), SCHEMA)
    stream = c.chat.completions.create(model=model, messages=CHAT, seed=4, max_tokens=200, response_format=wanted,
                                       stream=True)
    equal("".join(x.choices[0].delta.content or "" for x in stream), a.choices[0].message.content)


def schema_parsed(c, model):
    import pydantic

    class Animal(pydantic.BaseModel):
        age: int
        wild: bool
    a = c.chat.completions.parse(model=model, messages=CHAT, seed=3, max_tokens=200, response_format=Animal)
    assert isinstance(a.choices[0].message.parsed, Animal), a


def json_object(c, model):
    for seed in range(5):
        a = c.chat.completions.create(model=model, messages=CHAT, seed=seed, max_tokens=400,
                                      response_format={"type": "json_object"})
        if a.choices[0].finish_reason == "stop":
            assert isinstance(json.loads(a.choices[0].message.content), dict), a.choices[0].message.content
    c.chat.completions.create(model=model, messages=CHAT, max_tokens=4, response_format={"type": "text"})


def grammar(c, model):
    a = c.chat.completions.create(model=model, messages=CHAT, max_tokens=20, extra_body={
        "grammar": 'root ::= "yes" | "no"'})
    assert a.choices[0].message.content in ("yes", "no"), a
    raised(openai.BadRequestError, lambda: c.chat.completions.create(
        model=model, messages=CHAT, extra_body={"grammar": "root ::= nothing"}), 400)
    raised(openai.BadRequestError, lambda: c.chat.completions.create(model=model, messages=CHAT, response_format={
        "type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "nonsense"}}}), 400)


def called(calls, names):
    for one in calls:
        assert one.function.name in names, one
        jsonschema.validate(json.loads(one.function.arguments), TOOLS[0]["function"]["parameters"])


def tools_required(c, model):
    a = c.chat.completions.create(model=model, messages=CHAT, tools=TOOLS, tool_choice="required", max_tokens=80,
                                  seed=1, parallel_tool_calls=False)
    one = a.choices[0]
    equal((one.finish_reason, len(one.message.tool_calls)), ("tool_calls", 1))
    called(one.message.tool_calls, ("sun", "sea"))
    # the call and its result go back
    back = [*CHAT, one.message, {"role": "tool", "tool_call_id": one.message.tool_calls[0].id, "content": "sun"}]
    c.chat.completions.create(model=model, messages=back, tools=TOOLS, max_tokens=5)
    many = c.chat.completions.create(model=model, messages=CHAT, tools=TOOLS, tool_choice="required", max_tokens=80, seed=2)
    called(many.choices[0].message.tool_calls, ("sun", "sea"))


def tools_named(c, model):
    choice = {"type": "function", "function": {"name": "sea"}}
    for seed in range(3):
        a = c.chat.completions.create(model=model, messages=CHAT, tools=TOOLS, tool_choice=choice, max_tokens=80, seed=seed)
        called(a.choices[0].message.tool_calls, ("sea",))
    raised(openai.BadRequestError, lambda: c.chat.completions.create(
        model=model, messages=CHAT, tools=TOOLS, tool_choice={"type": "function", "function": {"name": "none"}}), 400)


def tools_streamed(c, model):
    stream = c.chat.completions.create(model=model, messages=CHAT, tools=TOOLS, tool_choice="required", max_tokens=80,
                                       seed=1, stream=True, parallel_tool_calls=False)
    names, arguments, reasons = {}, {}, []
    for x in stream:
        for t in x.choices[0].delta.tool_calls or []:
            names[t.index] = t.function.name or names.get(t.index)
            arguments[t.index] = arguments.get(t.index, "") + (t.function.arguments or "")
        reasons.append(x.choices[0].finish_reason)
    equal((len(names), reasons[-1]), (1, "tool_calls"))
    assert names[0] in ("sun", "sea")
    jsonschema.validate(json.loads(arguments[0]), TOOLS[0]["function"]["parameters"])


# completions


def completions(c, model):
    a = c.completions.create(model=model, prompt=STORY, max_tokens=12, seed=3)
    equal((a.object, a.choices[0].finish_reason, a.usage.completion_tokens), ("text_completion", "length", 12))
    equal(c.completions.create(model=model, prompt=[STORY], max_tokens=12, seed=3).choices[0].text, a.choices[0].text)
    stream = c.completions.create(model=model, prompt=STORY, max_tokens=12, seed=3, stream=True)
    equal("".join(x.choices[0].text for x in stream), a.choices[0].text)
    n = c.completions.create(model=model, prompt=STORY, max_tokens=12, seed=3, n=2)
    equal(n.choices[0].text, a.choices[0].text)
    assert n.choices[1].text != a.choices[0].text
    equal(len(c.completions.create(model=model, prompt=STORY).choices[0].text) > 0, True)


def completions_echo(c, model):
    a = c.completions.create(model=model, prompt=STORY, max_tokens=5, temperature=0, echo=True, logprobs=2)
    one = a.choices[0]
    assert one.text.startswith(STORY), one.text
    p = one.logprobs
    equal(len(p.tokens), a.usage.prompt_tokens + 5, "tokens of the prompt and of the text")
    equal(len({len(p.tokens), len(p.token_logprobs), len(p.top_logprobs), len(p.text_offset)}), 1)
    equal(p.token_logprobs[0], None, "the first token follows nothing")
    assert all(x <= 0 for x in p.token_logprobs[1:])
    alone = c.completions.create(model=model, prompt=STORY, max_tokens=0, echo=True, logprobs=1)
    equal((alone.choices[0].text, alone.usage.completion_tokens), (STORY, 0), "a prompt that is scored")
    equal(alone.choices[0].logprobs.token_logprobs[1:], p.token_logprobs[1:a.usage.prompt_tokens])


def completions_ids(c, model, server):
    ids = json.loads(post(server, "/tokenize", {"content": STORY, "add_special": True}))["tokens"]
    text = c.completions.create(model=model, prompt=STORY, max_tokens=9, temperature=0).choices[0].text
    equal(c.completions.create(model=model, prompt=ids, max_tokens=9, temperature=0).choices[0].text, text)


# the rest of the routes


def responses(c, model):
    a = c.responses.create(model=model, input="Tell me of a fox.", instructions="Be brief.", max_output_tokens=16)
    equal((a.object, a.status, a.incomplete_details.reason), ("response", "incomplete", "max_output_tokens"))
    assert a.output_text and a.usage.output_tokens == 16, a
    shaped = c.responses.create(model=model, input=[{"role": "user", "content": "An animal?"}], max_output_tokens=300,
                                text={"format": {"type": "json_schema", "name": "animal", "schema": SCHEMA, "strict": True}})
    equal(shaped.status, "completed")
    jsonschema.validate(json.loads(shaped.output_text), SCHEMA)
    tool = {"type": "function", **TOOLS[0]["function"], "strict": True}
    call = c.responses.create(model=model, input="Weather?", tools=[tool], tool_choice="required", max_output_tokens=80)
    calls = [x for x in call.output if x.type == "function_call"]
    assert calls and calls[0].name == "sun", call.output
    jsonschema.validate(json.loads(calls[0].arguments), TOOLS[0]["function"]["parameters"])
    back = [{"role": "user", "content": "Weather?"}, calls[0].model_dump(exclude_none=True),
            {"type": "function_call_output", "call_id": calls[0].call_id, "output": "sun"}]
    c.responses.create(model=model, input=back, tools=[tool], max_output_tokens=5)
    raised(openai.BadRequestError, lambda: c.responses.create(model=model, input="x", previous_response_id="resp_1"), 400)


def responses_streamed(c, model):
    text, kinds = "", []
    for event in c.responses.create(model=model, input="Tell me of a fox.", max_output_tokens=16, stream=True,
                                    temperature=0):
        kinds.append(event.type)
        text += event.delta if event.type == "response.output_text.delta" else ""
    equal((kinds[0], kinds[-1]), ("response.created", "response.incomplete"))
    equal(event.response.output_text, text)
    whole = c.responses.create(model=model, input="Tell me of a fox.", max_output_tokens=16, temperature=0)
    equal(whole.output_text, text)
    shape = {"format": {"type": "json_schema", "name": "animal", "schema": SCHEMA, "strict": True}}
    with c.responses.stream(model=model, input="An animal?", max_output_tokens=300, text=shape) as stream:
        seen = "".join(e.delta for e in stream if e.type == "response.output_text.delta")
        equal(stream.get_final_response().output_text, seen, "the helper's text")
    jsonschema.validate(json.loads(seen), SCHEMA)
    tool = {"type": "function", **TOOLS[0]["function"], "strict": True}
    with c.responses.stream(model=model, input="Weather?", tools=[tool], tool_choice="required", max_output_tokens=80,
                            parallel_tool_calls=False) as stream:
        for _ in stream:
            pass
        final = stream.get_final_response()
    assert any(x.type == "function_call" and x.name == "sun" for x in final.output), final.output


def models(c, model):
    equal([m.id for m in c.models.list()], [model])
    equal(c.models.retrieve(model).object, "model")
    raised(openai.NotFoundError, lambda: c.models.retrieve("no-such-model"), 404)


def errors(c, model, server):
    chat = c.chat.completions.create
    bad = openai.BadRequestError
    for fields in ({"temperature": -1}, {"n": 17}, {"n": 0}, {"top_p": 2}, {"max_tokens": -5}, {"seed": "x"},
                   {"stop": ["x"] * 17}, {"logit_bias": {"99999999": 1}}, {"logprobs": True, "top_logprobs": 21},
                   {"top_logprobs": 2}, {"response_format": {"type": "xml"}}, {"tools": [{}]}, {"stream": "yes"}):
        e = raised(bad, lambda f=fields: chat(model=model, messages=CHAT, **f), 400)
        assert e.body and e.body["message"] and e.body["type"] == "invalid_request_error", (fields, e.body)
    raised(bad, lambda: chat(model=model, messages=[]), 400)
    raised(bad, lambda: chat(model=model, messages=[{"role": "user", "content": [
        {"type": "image_url", "image_url": {"url": "data:,"}}]}]), 400, "image_url")
    long = raised(bad, lambda: c.completions.create(model=model, prompt="word " * 20000), 400, "context")
    equal(long.code, "exceed_context_size_error")
    assert long.body["n_prompt_tokens"] > long.body["n_ctx"] > 0, long.body
    raised(openai.NotFoundError, lambda: c.get("/nowhere", cast_to=object), 404)
    raised(openai.APIStatusError, lambda: c.embeddings.create(model=model, input="x"), 501)
    raised(openai.APIStatusError, lambda: c.completions.create(model=model, prompt="x" * (9 << 20)), 413)
    equal(any(server.texts().values()), False, "nothing is at work")


def cancel(c, model, server):
    """A client that has heard enough."""
    before = server.metrics()
    stream = c.chat.completions.create(model=model, messages=CHAT, max_tokens=4000, stream=True,
                                       extra_body={"ignore_eos": True})
    for i, _ in enumerate(stream):
        if i == 5:
            break
    stream.close()
    took = settled(server)
    after = server.metrics()
    name = "isobit:answers_cancelled_total"
    equal(after[name] - before[name], 1, "cancelled")
    assert took < 0.5, took
    return f"nothing at work after {took * 1e3:.0f} ms"


def keys():
    with Server("--api-key", "a-key-of-mine") as server:
        for key in ("wrong", "a-key-of-min", ""):
            c = openai.OpenAI(base_url=server.url + "/v1", api_key=key or "-", max_retries=0)
            raised(openai.AuthenticationError, c.models.list, 401)
        c = openai.OpenAI(base_url=server.url + "/v1", api_key="a-key-of-mine", max_retries=0)
        model = c.models.list().data[0].id
        assert c.chat.completions.create(model=model, messages=CHAT, max_tokens=3).choices
        o = ollama.Client(server.url)
        raised(ollama.ResponseError, lambda: o.chat(model, CHAT), 401)
        o = ollama.Client(server.url, headers={"Authorization": "Bearer a-key-of-mine"})
        assert o.chat(model, CHAT, options={"num_predict": 3}).message
        assert "a-key-of-mine" not in server.stderr() and b"a-key-of-mine" not in get_with(server, "/metrics")


def get_with(server, path):
    import urllib.request
    request = urllib.request.Request(server.url + path, headers={"Authorization": "Bearer a-key-of-mine"})
    return urllib.request.urlopen(request).read()


def embeddings():
    with Server("--embeddings", chat=False) as server:
        c = openai.OpenAI(base_url=server.url + "/v1", api_key="-", max_retries=0)
        model = c.models.list().data[0].id
        # the client asks for base64 and makes numbers of it
        many = c.embeddings.create(model=model, input=["a fox", "a dog", "a fox"])
        one = c.embeddings.create(model=model, input="a fox", encoding_format="float")
        equal(many.data[0].embedding, many.data[2].embedding)
        assert many.data[0].embedding != many.data[1].embedding
        assert max(abs(x - y) for x, y in zip(one.data[0].embedding, many.data[0].embedding)) < 1e-6
        equal([d.index for d in many.data], [0, 1, 2])
        assert many.usage.prompt_tokens > 0
        o = ollama.Client(server.url)
        theirs = o.embed(model, ["a fox", "a dog"])
        equal(len(theirs.embeddings), 2)
        assert max(abs(x - y) for x, y in zip(one.data[0].embedding, theirs.embeddings[0])) < 1e-6
        equal(len(o.embed(model, "a fox").embeddings), 1)
        for client_call in (lambda: c.embeddings.create(model=model, input=[]),
                            lambda: c.embeddings.create(model=model, input=["x"] * 257),
                            lambda: c.embeddings.create(model=model, input="x", dimensions=8)):
            raised(openai.BadRequestError, client_call, 400)
        raised(openai.APIStatusError, lambda: c.completions.create(model=model, prompt="x"), 501)
        return f"{len(one.data[0].embedding)} numbers"


# Ollama


def ollama_chat(o, model):
    options = {"num_predict": 16, "seed": 5}
    a = o.chat(model, CHAT, options=options)
    assert a.done and a.done_reason == "length" and a.eval_count == 16 and a.message.role == "assistant", a
    lines = list(o.chat(model, CHAT, options=options, stream=True))
    equal("".join(x.message.content or "" for x in lines), a.message.content)
    equal(([x.done for x in lines].count(True), lines[-1].done), (1, True))
    assert lines[-1].eval_count == 16 and lines[-1].total_duration > 0


def ollama_generate(o, model):
    options = {"num_predict": 16, "seed": 5}
    for more in ({}, {"system": "Be brief."}, {"raw": True}):
        a = o.generate(model, STORY, options=options, **more)
        equal("".join(x.response for x in o.generate(model, STORY, options=options, stream=True, **more)), a.response)
        assert a.done and a.eval_count == 16, a


def ollama_format(o, model):
    a = o.chat(model, CHAT, format=SCHEMA, options={"num_predict": 300, "seed": 2})
    jsonschema.validate(json.loads(a.message.content), SCHEMA)
    text = "".join(x.message.content or "" for x in o.chat(model, CHAT, format=SCHEMA, stream=True,
                                                           options={"num_predict": 300, "seed": 2}))
    equal(text, a.message.content)
    g = o.generate(model, STORY, format=SCHEMA, options={"num_predict": 300})
    jsonschema.validate(json.loads(g.response), SCHEMA)
    j = o.chat(model, CHAT, format="json", options={"num_predict": 400, "seed": 2})
    if j.done_reason == "stop":
        json.loads(j.message.content)


def ollama_lists(o, model, server):
    equal([m.model for m in o.list().models], [model])
    equal([m.model for m in o.ps().models], [model])
    shown = o.show(model)
    assert "completion" in shown.capabilities and shown.template, shown
    assert b"version" in server.get("/api/version")


def ollama_errors(o, model):
    raised(ollama.ResponseError, lambda: o.chat(model, CHAT, options={"temperature": -1}), 400, "temperature")
    raised(ollama.ResponseError, lambda: o.chat(model, CHAT, format={"type": "xml"}), 400)
    raised(ollama.ResponseError, lambda: list(o.chat(model, [{"role": "user", "content": "word " * 2000}], stream=True)), 400, "tokens")
    raised(ollama.ResponseError, lambda: o.embed(model, "x"), 501)
    raised(ollama.ResponseError, lambda: o.pull("no-such-model"), 404)


# curl


def curl(*arguments, body=None):
    given = ["--data-binary", body if isinstance(body, str) else json.dumps(body)] if body is not None else []
    return subprocess.run(["curl", "-sS", "--max-time", "60", *arguments, *given], capture_output=True, text=True, check=True).stdout


def post(server, path, body):
    return curl(server.url + path, body=body)


def by_curl(server):
    url = server.url
    # as the help has it, without a type of the content
    a = json.loads(curl(url + "/v1/chat/completions", body='{"messages": [{"role": "user", "content": "Hello"}], "max_tokens": 8}'))
    assert a["choices"][0]["message"]["content"], a
    events = curl("-N", url + "/v1/completions", body={"prompt": STORY, "max_tokens": 4, "stream": True}).split("\n\n")
    equal((events[-2], events[-1]), ("data: [DONE]", ""))
    assert all(e.startswith("data: ") for e in events[:-1])
    head = curl("-i", "-H", "x-isobit-digest: 1", url + "/v1/completions", body={"prompt": STORY, "max_tokens": 4})
    assert "x-isobit-digest: " in head, head
    ids = json.loads(post(server, "/tokenize", {"content": STORY}))["tokens"]
    equal(json.loads(post(server, "/detokenize", {"tokens": ids}))["content"], STORY)
    assert "fox" in json.loads(post(server, "/apply-template", {"messages": CHAT}))["prompt"]
    for path, part in (("/health", '"ok"'), ("/props", "n_ctx"), ("/slots", "is_processing"), ("/metrics", "llamacpp:"),
                       ("/isobit/status", "waiting"), ("/isobit/runs", "runs"), ("/", "<title>"), ("/v1/models", "meta")):
        assert part in curl(url + path), path

    def status(*arguments, body=None):
        return int(curl("-o", "/dev/null", "-w", "%{http_code}", *arguments, body=body))
    chat = url + "/v1/chat/completions"
    small = {"prompt": STORY, "max_tokens": 1}
    for wanted, arguments, body in (
            (200, ("-I", url + "/health"), None), (405, ("-X", "DELETE", chat), None), (405, (chat,), None),
            (404, (url + "/x",), None), (400, (chat,), "{"), (400, (chat,), ""), (403, ("-H", "Host: evil.example", url + "/"), None),
            (403, ("-H", "Origin: http://evil.example", chat), "{}"), (403, ("-H", "Origin: null", chat), "{}"),
            (405, ("-X", "OPTIONS", chat), None), (200, ("-H", "Host: localhost.:80", url + "/health"), None),
            (200, ("-H", "Transfer-Encoding: chunked", url + "/v1/completions"), small),
            (200, ("-H", "Expect: 100-continue", url + "/v1/completions"), small),
            (200, ("--http1.0", url + "/v1/completions"), small),
            (431, ("-H", "X-Long: " + "x" * 20000, url + "/health"), None),
            (431, (*[x for i in range(80) for x in ("-H", f"X-{i}: y")], url + "/health"), None),
            (200, ("--http2", url + "/health"), None)):
        equal(status(*arguments, body=body), wanted, " ".join(arguments)[:120])


def digests(c, model):
    """Whoever asks besides."""
    def one():
        a = c.chat.completions.with_raw_response.create(model=model, messages=CHAT, max_tokens=16, seed=9,
                                                        extra_headers={"x-isobit-digest": "1"})
        return a.headers["x-isobit-digest"], a.parse().choices[0].message.content
    alone, seen = one(), []
    threads = [threading.Thread(target=lambda: seen.append(one())) for _ in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    equal(set(seen), {alone})


def main():
    checks = Checks()
    # more than the model was trained with: tools alone take half of that
    with Server("-c", "1024") as server:
        c = openai.OpenAI(base_url=server.url + "/v1", api_key="-", max_retries=0, timeout=120)
        o = ollama.Client(server.url, timeout=120)
        model = c.models.list().data[0].id
        print(f"openai {openai.__version__}, ollama {metadata.version('ollama')}, model {model}")
        for what in (chat_whole, chat_streamed, chat_many, chat_logprobs, chat_stop, chat_sampling, schema, schema_parsed,
                     json_object, grammar, tools_required, tools_named, tools_streamed, completions, completions_echo,
                     responses, responses_streamed, models, digests):
            checks.run("openai " + what.__name__, what, c, model)
        for what in (completions_ids, errors, cancel):
            checks.run("openai " + what.__name__, what, c, model, server)
        for what in (ollama_chat, ollama_generate, ollama_format, ollama_errors):
            checks.run(what.__name__, what, o, model)
        checks.run("ollama_lists", ollama_lists, o, model, server)
        checks.run("curl", by_curl, server)
        checks.run("nothing left", lambda: settled(server) and None)
        checks.run("no panics", lambda: equal(server.panicked(), []))
    checks.run("keys", keys)
    checks.run("embeddings", embeddings)
    checks.end()


if __name__ == "__main__":
    main()
