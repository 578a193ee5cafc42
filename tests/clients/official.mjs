// The official JavaScript client of OpenAI, unmodified, against the server at the URL given.
//
//     OPENAI_TOOLS=FOLDER node tests/clients/official.mjs URL
//
// FOLDER: where npm has installed the package `openai`.
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { join } from 'node:path';

const require = createRequire(join(process.env.OPENAI_TOOLS ?? '.', 'package.json'));
const { default: OpenAI, BadRequestError, NotFoundError, APIError } = require('openai');
const url = process.argv[2];
const client = new OpenAI({ baseURL: `${url}/v1`, apiKey: '-', maxRetries: 0, timeout: 120000 });
const model = (await client.models.list()).data[0].id;
const messages = [{ role: 'user', content: 'Tell me a story about a fox.' }];
const parameters = {
  type: 'object',
  properties: { city: { enum: ['Rome', 'Oslo'] }, days: { type: 'integer', minimum: 1, maximum: 7 } },
  required: ['city', 'days'],
  additionalProperties: false,
};
const tools = [{ type: 'function', function: { name: 'weather', parameters } }];
const right = (json) => {
  const { city, days, ...rest } = JSON.parse(json);
  assert(['Rome', 'Oslo'].includes(city) && Number.isInteger(days) && days >= 1 && days <= 7, json);
  assert.deepEqual(rest, {});
};
const status = async () => (await fetch(`${url}/isobit/status`)).json();

const checks = {
  async 'a chat, whole and streamed'() {
    const fields = { model, messages, max_tokens: 20, seed: 7 };
    const whole = await client.chat.completions.create(fields);
    assert.equal(whole.usage.completion_tokens, 20);
    let text = '', usage;
    const stream = await client.chat.completions.create({ ...fields, stream: true, stream_options: { include_usage: true } });
    for await (const chunk of stream) {
      text += chunk.choices[0]?.delta.content ?? '';
      usage = chunk.usage ?? usage;
    }
    assert.equal(text, whole.choices[0].message.content);
    assert.equal(usage.completion_tokens, 20);
    // the client's own helper
    const helper = client.chat.completions.stream(fields);
    assert.equal(await helper.finalContent(), text);
  },
  async 'log probabilities'() {
    const a = await client.chat.completions.create({ model, messages, max_tokens: 5, temperature: 0, logprobs: true, top_logprobs: 2 });
    assert.deepEqual(a.choices[0].logprobs.content.map((t) => t.top_logprobs.length), [2, 2, 2, 2, 2]);
  },
  async 'completions'() {
    const a = await client.completions.create({ model, prompt: 'Once upon a time', max_tokens: 9, seed: 2, n: 2 });
    assert.equal(a.choices.length, 2);
    let text = '';
    for await (const x of await client.completions.create({ model, prompt: 'Once upon a time', max_tokens: 9, seed: 2, stream: true }))
      text += x.choices[0]?.text ?? '';
    assert.equal(text, a.choices[0].text);
  },
  async 'a schema'() {
    const response_format = { type: 'json_schema', json_schema: { name: 'trip', schema: parameters, strict: true } };
    const a = await client.chat.completions.create({ model, messages, max_tokens: 200, response_format });
    right(a.choices[0].message.content);
  },
  async 'tools'() {
    for (const tool_choice of ['required', { type: 'function', function: { name: 'weather' } }]) {
      const fields = { model, messages, tools, tool_choice, max_tokens: 300, parallel_tool_calls: false, seed: 1 };
      const a = await client.chat.completions.create(fields);
      assert.equal(a.choices[0].finish_reason, 'tool_calls');
      right(a.choices[0].message.tool_calls[0].function.arguments);
      const final = await client.chat.completions.stream(fields).finalChatCompletion();
      right(final.choices[0].message.tool_calls[0].function.arguments);
    }
    // the helper that calls the function and sends back what it gave
    const runner = client.chat.completions.runTools({
      model, messages, max_tokens: 300, tool_choice: { type: 'function', function: { name: 'weather' } }, seed: 1,
      tools: [{ type: 'function', function: { name: 'weather', parameters, parse: JSON.parse, function: () => 'sun' } }],
    });
    let ran = 0;
    runner.on('functionToolCallResult', () => { ran += 1; });
    await runner.done();
    assert(ran >= 1, 'the function was not called');
  },
  async 'responses'() {
    const fields = { model, input: 'Tell me of a fox.', max_output_tokens: 12, temperature: 0 };
    const whole = await client.responses.create(fields);
    assert(whole.output_text.length > 0);
    let text = '', last;
    for await (const event of await client.responses.create({ ...fields, stream: true })) {
      if (event.type === 'response.output_text.delta') text += event.delta;
      last = event.type;
    }
    assert.equal(text, whole.output_text);
    assert.equal(last, 'response.incomplete');
    assert.equal((await client.responses.stream(fields).finalResponse()).output_text, text);
  },
  async 'errors'() {
    const chat = (more) => client.chat.completions.create({ model, messages, ...more });
    await assert.rejects(chat({ temperature: -1 }), (e) => e instanceof BadRequestError && e.status === 400 && e.param === 'temperature');
    await assert.rejects(client.models.retrieve('nothing'), (e) => e instanceof NotFoundError);
    await assert.rejects(client.embeddings.create({ model, input: 'x' }), (e) => e instanceof APIError && e.status === 501);
    await assert.rejects(client.completions.create({ model, prompt: 'word '.repeat(20000) }), (e) => e.code === 'exceed_context_size_error');
  },
  async 'a stream is left'() {
    const stream = await client.chat.completions.create({ model, messages, max_tokens: 4000, stream: true, ignore_eos: true });
    let seen = 0;
    for await (const _ of stream) if (++seen === 5) break;
    const begun = Date.now();
    for (;;) {
      const { texts } = await status();
      if (texts.running + texts.waiting === 0) break;
      assert(Date.now() - begun < 2000, 'it is still at work');
    }
  },
};

let failed = 0;
console.log(`openai ${JSON.parse(readFileSync(join(process.env.OPENAI_TOOLS ?? '.', 'node_modules/openai/package.json'))).version} (JavaScript), model ${model}`);
for (const [name, check] of Object.entries(checks)) {
  try {
    await check();
    console.log(`ok      JavaScript: ${name}`);
  } catch (e) {
    failed += 1;
    console.log(`FAILED  JavaScript: ${name}\n${String(e.stack ?? e).slice(0, 1500)}`);
  }
}
console.log(`${failed} failed`);
process.exit(failed ? 1 : 0);
