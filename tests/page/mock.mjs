// A server that answers the page as isobit's does, without a model: what it says follows from words of the prompt. Bytes of
// its streams are cut anywhere, characters too, with pings between. `options` may be changed while it runs.
import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { createServer } from 'node:http';

const PAGE = new URL('../../src/server/page.html', import.meta.url);

/** The policy that allows the page's one script and one style sheet by their hashes, and no way to make markup of text. */
export function policy(html) {
  const hash = (tag) => {
    const body = new RegExp(`<${tag}>([\\s\\S]*?)</${tag}>`).exec(html)[1];
    return `'sha256-${createHash('sha256').update(body).digest('base64')}'`;
  };
  return `default-src 'none'; connect-src 'self'; img-src 'self' data:; style-src ${hash('style')}; script-src ${hash('script')}; ` +
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'";
}

const STORY = ' there was a little fox who lived at the edge of a quiet forest. Every morning she counted the stones of the old bridge, and every evening she counted them again. "They are the same," she said, "whoever counts them." One day the river rose, and a naïve young badger 🦡 asked her how she could be so sure. She showed him: one, two, three — and the number came out equal.';
const MARKDOWN = `Addition of floats is **not associative**, because every sum is *rounded* once. The order decides which bits are lost, so \`(a + b) + c\` and \`a + (b + c)\` can differ.

## An example

\`\`\`python
a, b, c = 1e16, -1e16, 1.0
print((a + b) + c)  # 1.0
print(a + (b + c))  # 0.0
\`\`\`

Three ways out:

1. Write **one order** down and keep to it.
2. Sum exactly, in integers:
   - products of int8 fit in i32,
   - and *any* order is right.
3. Accept the scatter.

| order | result |
|---|---:|
| left to right | \`1.0\` |
| right to left | \`0.0\` |

> Equal bits are a choice, not luck.

More in [the document](https://example.org/exactness).`;
export const EVIL = `<script>window.hacked=1</script><img src=x onerror="window.hacked=2"> **<b onmouseover=alert(1)>bold</b>** [click](javascript:window.hacked=3) [ok](https://example.org/"onmouseover="window.hacked=4)

\`\`\`<img src=x onerror=window.hacked=5>
</code></pre><script>window.hacked=6</script>
\`\`\`

<svg onload=window.hacked=7></svg> <iframe src="javascript:parent.hacked=8"></iframe> {{constructor.constructor('window.hacked=9')()}}`;

function random(seed) {
  let x = seed >>> 0;
  return () => ((x = (Math.imul(x, 1664525) + 1013904223) >>> 0) / 4294967296);
}
const utf8 = new TextEncoder();
/** Tokens as models have them: words with the blank before; characters beyond the basic plane in two pieces. */
function tokensOf(text) {
  const out = [];
  for (const piece of text.match(/ ?[\p{L}\p{N}]+|\n+| ?[^\s\p{L}\p{N}]|\s/gu) ?? []) {
    const bytes = [...utf8.encode(piece)];
    if (bytes.length > 4 && piece.codePointAt(piece.length - 2) > 0xffff || (bytes.length === 4 && piece.length === 2)) {
      out.push({ token: '\ufffd', bytes: bytes.slice(0, -2) }, { token: '\ufffd', bytes: bytes.slice(-2), text: piece });
    } else out.push({ token: piece, bytes, text: piece });
  }
  return out;
}
function withOdds(token, next, n = 5) {
  const p = next() < 0.6 ? 0.9 + 0.1 * next() : 0.05 + 0.85 * next();
  const others = [' a', ' the', '\n', ' she', ' it', ' and'].filter((t) => t !== token.token);
  let left = 1 - p;
  const top = [{ token: token.token, logprob: Math.log(p), bytes: token.bytes }];
  for (let i = 0; i < n - 1; i++) {
    const q = left * (0.3 + 0.4 * next());
    left -= q;
    top.push({ token: others[i], logprob: Math.log(q), bytes: [...utf8.encode(others[i])] });
  }
  top.sort((a, b) => b.logprob - a.logprob);
  return { token: token.token, bytes: token.bytes, logprob: Math.log(p), top_logprobs: top };
}

export function mock() {
  const options = { loadingUntil: 0, key: null, chatTemplate: '{{ messages }}', record: true, limit: 118.4, busy: 0, check: 'equal', checkMs: 400, slow: 4, alias: 'tiny-stories' };
  const seen = { requests: [], chats: [], aborted: 0 };
  const runs = new Map();
  const fingerprint = 'isobit arithmetic 7; model 3c5f0a11d2e84b96; activations 8; keys f16, values f16; factors short';
  const started = Date.now();

  const digestOf = (tokens) => createHash('sha256').update(JSON.stringify(tokens.map((t) => [t.token, t.logprob]))).digest('hex');
  function makeRun(body, prompt, tokens, text, device = 'llvmpipe (LLVM 15.0.6, 256 bits)') {
    const digest = digestOf(tokens);
    const id = 'run-' + digest.slice(0, 12) + (device === 'CPU' ? 'c' : '');
    const receipt = JSON.stringify({ version: 1, model: '3c5f0a11d2e84b96', fingerprint, device, output_ids: tokens.map((_, i) => 100 + i), chain: digest }) + '\n';
    runs.set(id, { id, created: Math.floor(Date.now() / 1000), model: options.alias, prompt_tokens: prompt.length >> 2, tokens: tokens.length, digest, device, preview: text.slice(0, 100), prompt, text, receipt, list: tokens });
    return { digest, run: id, receipt };
  }
  // two runs that part at the 13th token
  const first = (() => {
    const next = random(7);
    return tokensOf(STORY).map((t) => withOdds(t, next));
  })();
  makeRun({}, 'Once upon a time', first, STORY);
  const other = first.map((t, i) => (i < 6 ? t : { ...t, logprob: t.logprob - 0.01 }));
  const turned = STORY.replace('quiet forest. Every morning she counted the stones', 'small village. Every day she carried water to the people');
  const next = random(9);
  makeRun({}, 'Once upon a time', [...other.slice(0, 12), ...tokensOf(turned).slice(12).map((t) => withOdds(t, next))], turned, 'CPU');

  function script(prompt) {
    const n = /\blong (\d+)/.exec(prompt);
    if (n) {
      const words = STORY.trim().split(' ');
      let text = '';
      for (let i = 0, line = 0; i < n[1]; i++) {
        text += (text && line ? ' ' : '') + words[i % words.length].replace('🦡', 'b').replace(/[^\p{L}.]/gu, '');
        line = (line + 1) % 90;
        if (!line) text += '\n\n';
      }
      return { text };
    }
    if (/xss/.test(prompt)) return { text: EVIL, reasoning: '<img src=x onerror=window.hacked=10>', calls: [{ name: '<img src=x onerror=window.hacked=11>', arguments: '{"a":"<script>window.hacked=12</script>"}' }] };
    if (/tool/.test(prompt)) return { text: '', calls: [{ name: 'get_weather', arguments: '{"city":"Bergen","unit":"celsius"}' }] };
    if (/think/.test(prompt)) return { reasoning: 'They ask for a fox. A fox counts stones.\nSo the answer is about equal numbers.', text: 'The fox counts **the same** stones each day.' };
    if (/markdown|floating/.test(prompt)) return { text: MARKDOWN };
    return { text: STORY.trim() };
  }

  async function answer(request, response, body, chat) {
    const prompt = chat ? String(body.messages.filter((m) => m.role === 'user' || m.role === 'tool').at(-1)?.content ?? '') : String(body.prompt);
    const say = chat ? script(prompt) : script(/\b(long|xss)/.test(prompt) ? prompt : '') ;
    const text = chat ? say.text : ' ' + say.text;
    const seed = Number(body.seed ?? 1) + (seen.chats.length % 2 && body.temperature !== 0 ? 100 : 0);
    const next = random(seed * 7919 + prompt.length);
    const cut = random(seen.requests.length + 1);
    const most = body.max_tokens ?? Infinity;
    const id = (chat ? 'chatcmpl-' : 'cmpl-') + seen.requests.length;
    response.writeHead(200, { 'content-type': 'text/event-stream', 'cache-control': 'no-store' });
    let gone = false;
    response.on('close', () => { if (!response.writableFinished) { gone = true; seen.aborted++; } });
    const slow = Number(/slow (\d+)/.exec(prompt)?.[1] ?? options.slow);
    const fast = /\blong \d+/.test(prompt);
    const sleep = (ms) => new Promise((done) => setTimeout(done, ms));
    // bytes are cut where it hurts
    let pending = Buffer.alloc(0), cuts = 0;
    const write = async (s, flush) => {
      pending = Buffer.concat([pending, Buffer.from(s)]);
      if (!flush && fast && pending.length < 9000) return;
      while (pending.length && !gone) {
        // within the first characters of several bytes, and between CR and LF, for certain
      const inside = fast ? -1 : pending.findIndex((b, i) => i > 0 && ((b & 0xc0) === 0x80 || (cuts < 8 && b === 10 && pending[i - 1] === 13)));
      const n = fast ? pending.length : inside > 0 ? inside : Math.max(1, Math.floor(cut() * 160));
        response.write(pending.subarray(0, n));
        pending = pending.subarray(n);
        if (inside > 0) { cuts++; await sleep(4); } else if (!fast && cut() < 0.1) await sleep(1);
      }
    };
    const end = () => (cut() < 0.3 ? '\r\n\r\n' : '\n\n');
    const send = (x) => write((cut() < 0.1 ? ': ping\n\n' : '') + 'data: ' + JSON.stringify(x) + end());
    const base = { id, object: chat ? 'chat.completion.chunk' : 'text_completion', created: Math.floor(Date.now() / 1000), model: options.alias, system_fingerprint: fingerprint };
    const event = (delta, tokens, finish = null) => {
      if (chat) return { ...base, choices: [{ index: 0, delta, logprobs: body.logprobs && tokens?.length ? { content: tokens } : null, finish_reason: finish }] };
      const lp = tokens?.length && body.logprobs ? { tokens: tokens.map((t) => t.token), token_logprobs: tokens.map((t) => t.logprob), top_logprobs: tokens.map((t) => Object.fromEntries(t.top_logprobs.map((x) => [x.token, x.logprob]))), text_offset: [0] } : null;
      return { ...base, choices: [{ index: 0, text: delta.content ?? '', logprobs: lp, finish_reason: finish }] };
    };
    const begin = performance.now();
    const list = [];
    if (chat) await send(event({ role: 'assistant', content: '' }));
    let written = '';
    const stream = async (field, full) => {
      for (const token of chat ? tokensOf(full) : full.match(/\s?\S+|\s/g).map((t) => ({ token: t, bytes: [...utf8.encode(t)], text: t }))) {
        if (gone || list.length >= most) return;
        const t = withOdds(token, next);
        list.push(t);
        if (field === 'content') written += token.text ?? '';
        await send(event({ [field]: token.text ?? '' }, [t]));
        if (slow && !fast) await sleep(slow);
        if (/broken/.test(prompt) && list.length === 12) return void (await write('data: {"error":{"message":"the device was lost and is opened again","type":"server_error","code":500}}\n\n', true), gone = true, response.end());
        if (/cutoff/.test(prompt) && list.length === 12) return void (gone = true, response.destroy());
      }
    };
    if (say.reasoning && chat) await stream('reasoning_content', say.reasoning);
    await stream('content', text);
    if (gone) return;
    for (const [i, call] of (chat ? say.calls ?? [] : []).entries()) {
      await send(event({ tool_calls: [{ index: i, id: 'call_' + i, type: 'function', function: { name: call.name, arguments: '' } }] }));
      for (const piece of call.arguments.match(/.{1,7}/gs)) await send(event({ tool_calls: [{ index: i, function: { arguments: piece } }] }));
    }
    const reason = say.calls && chat ? 'tool_calls' : list.length >= most ? 'length' : 'stop';
    await send(event({}, null, reason));
    const ms = performance.now() - begin;
    const n = prompt.length >> 2;
    const last = { ...base, choices: [], usage: { prompt_tokens: n + 12, completion_tokens: list.length, total_tokens: n + 12 + list.length, prompt_tokens_details: { cached_tokens: 8 } },
      timings: { prompt_n: n + 4, prompt_ms: 11.2, prompt_per_second: 436.1, predicted_n: list.length, predicted_ms: ms, predicted_per_second: Math.min(options.limit ?? 99, (1000 * list.length) / ms), cache_n: 8 } };
    if (body.receipt) last.isobit = makeRun(body, prompt, list, written);
    await send(last);
    await write('data: [DONE]\n\n', true);
    response.end();
  }

  const server = createServer((request, response) => {
    const chunks = [];
    request.on('data', (c) => chunks.push(c));
    request.on('end', () => route(request, response, Buffer.concat(chunks).toString()).catch((e) => { console.error('mock:', e); response.destroy(); }));
  });
  async function route(request, response, raw) {
    const path = new URL(request.url, 'http://x').pathname;
    seen.requests.push(request.method + ' ' + path);
    const json = (status, x, headers = {}) => { response.writeHead(status, { 'content-type': 'application/json', ...headers }); response.end(JSON.stringify(x)); };
    const fail = (status, message, more = {}, headers = {}) => json(status, { error: { message, type: 'invalid_request_error', param: null, code: status, ...more } }, headers);
    if (path === '/') {
      const html = readFileSync(PAGE, 'utf8');
      response.writeHead(200, { 'content-type': 'text/html; charset=utf-8', 'content-security-policy': policy(html), 'x-content-type-options': 'nosniff' });
      return response.end(html);
    }
    const loading = Date.now() < options.loadingUntil;
    if (path === '/health') return loading ? fail(503, 'Loading model', { type: 'unavailable_error' }) : json(200, { status: 'ok' });
    if (options.key && request.headers.authorization !== 'Bearer ' + options.key) return fail(401, 'Invalid API Key', { type: 'authentication_error' });
    if (loading) return fail(503, 'Loading model', { type: 'unavailable_error' });
    if (path === '/props') {
      return json(200, { model_alias: options.alias, model_path: '/models/tiny-stories-Q4_K_M.gguf', n_ctx: 2048, total_slots: 4, chat_template: options.chatTemplate,
        default_generation_settings: { temperature: 0.8, top_k: 40, top_p: 0.95, min_p: 0.05, seed: 1, repeat_penalty: 1, presence_penalty: 0, frequency_penalty: 0 }, build_info: 'isobit 0.1.0',
        isobit: { device: 'llvmpipe (LLVM 15.0.6, 256 bits)', fingerprint, limit: { decode_tokens_per_second: options.limit }, record: options.record } });
    }
    if (path === '/v1/models') return json(200, { object: 'list', data: [{ id: options.alias, object: 'model', created: 1, owned_by: 'isobit' }] });
    if (path === '/isobit/status') return json(200, { texts: { running: 1, waiting: 0 }, cache: { chunks_used: 22, chunks_kept: 9, chunks: 128 }, device: 'llvmpipe (LLVM 15.0.6, 256 bits)', uptime_s: (Date.now() - started) / 1000 + 4000 });
    if (path === '/isobit/runs') return json(200, options.record ? { runs: [...runs.values()].reverse().map(({ list, text, prompt, receipt, ...r }) => r) } : { runs: [], record: false });
    if (path.startsWith('/isobit/runs/')) {
      const r = runs.get(decodeURIComponent(path.slice(13)));
      if (!r) return fail(404, 'there is no such run');
      return json(200, { id: r.id, receipt: r.receipt, text: r.text, prompt: r.prompt, tokens: r.list.map((t, i) => ({ id: 100 + [...t.token].reduce((a, c) => (a * 31 + c.codePointAt(0)) % 32000, 0), token: t.token, logprob: t.logprob, top: t.top_logprobs.map(({ token, logprob }) => ({ token, logprob })) })) });
    }
    const body = raw ? JSON.parse(raw) : {};
    if (path === '/isobit/check') {
      await new Promise((done) => setTimeout(done, options.checkMs));
      const n = JSON.parse(body.receipt ?? '{}').output_ids?.length ?? 0;
      if (options.check === 'error') return fail(500, 'the CPU has not enough memory for this model', { type: 'server_error' });
      if (options.check === 'equal') return json(200, { equal: true, tokens: n, device: 'CPU (avx512)', seconds: 1.84, first: null });
      return json(200, { equal: false, tokens: n, device: 'CPU (avx512)', seconds: 0.61, first: { index: 5, position: 17, expected: { id: 311, token: ' to' }, found: { id: 320, token: ' <b>of' }, what: options.check } });
    }
    if (path === '/v1/chat/completions' || path === '/v1/completions') {
      seen.chats.push(body);
      const said = JSON.stringify(body.messages?.at(-1) ?? body.prompt);
      if (options.busy > 0) { options.busy--; return fail(503, 'all texts are taken', { type: 'unavailable_error' }, { 'retry-after': '1' }); }
      if (/refuse/.test(said)) return fail(400, 'top_k is 0 or more', { param: 'top_k' });
      if (/too big/.test(said)) return fail(400, 'the request has 3,011 tokens, the context 2,048', { type: 'exceed_context_size_error' });
      return answer(request, response, body, path.includes('chat'));
    }
    return fail(404, 'there is no such route');
  }
  return { options, seen, server, listen: (port = 0) => new Promise((done) => server.listen(port, '127.0.0.1', () => done(`http://127.0.0.1:${server.address().port}`))) };
}

// by itself it is a server to look at the page with
if (process.argv[1] === new URL(import.meta.url).pathname) console.log(await mock().listen(Number(process.argv[2] ?? 0)));
