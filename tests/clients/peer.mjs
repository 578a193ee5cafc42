// Tokens a second and time to first token of `isobit serve` and, beside it, of llama.cpp, for 1, 4 and 16 clients at once on
// one model file.
//
//     PEER_SERVER=PATH/llama-server ISOBIT=target/release/isobit node tests/clients/peer.mjs MODEL.gguf [THREADS [ROUNDS]]
//     PEER_TOOLS=FOLDER ...
//
// llama.cpp's server over HTTP as ours; or, where that cannot be had, through the npm package node-llama-cpp, which is
// installed in FOLDER (in this process, without HTTP). Each client has a prompt of 64 token ids of its own and takes 32
// greedy tokens. Rounds take turns, so that what else the machine does meets both.
import { spawn } from 'node:child_process';
import { createServer } from 'node:net';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';

const [file, threads = '2', rounds = '3'] = process.argv.slice(2);
const peer = process.env.PEER_SERVER;
const PROMPT = 64, TOKENS = 32, CLIENTS = [1, 4, 16], ROUNDS = Number(rounds);

let next = 12345;
const random = () => (next = (next * 1103515245 + 12345) % 2147483648) / 2147483648;
const prompt = () => Array.from({ length: PROMPT }, () => 300 + Math.floor(random() * 30000));

/** What `clients` of `one` get at once: tokens a second of all of them, and the mean time to the first. */
async function round(clients, one) {
  const prompts = Array.from({ length: clients }, prompt);
  const begun = performance.now();
  const firsts = await Promise.all(prompts.map((ids, i) => one(ids, i)));
  const seconds = (performance.now() - begun) / 1e3;
  return { rate: (clients * TOKENS) / seconds, first: firsts.reduce((a, b) => a + b - begun, 0) / clients };
}

const running = [];
process.on('exit', () => running.forEach((server) => server.kill()));

/** The base address of a server that is started; it ends with this process, and this process with it. */
async function started(program, args, listening) {
  const server = spawn(program, args, { stdio: ['ignore', 'ignore', 'pipe'] });
  const url = await new Promise((found, lost) => {
    let said = '';
    server.stderr.on('data', (d) => {
      said += d;
      const hit = said.match(listening);
      if (hit) found(hit[1]);
    });
    server.on('error', lost);
    server.on('exit', (code) => {
      console.error(`${program} ended with ${code}: ${said.slice(-500)}`);
      process.exit(1);
    });
    running.push(server);
  });
  while (!(await fetch(`${url}/health`).catch(() => ({ ok: false }))).ok) await new Promise((r) => setTimeout(r, 100));
  return url;
}

/** A client of a server: when the first token came. */
const client = (url) => async (ids) => {
  const body = JSON.stringify({ prompt: ids, max_tokens: TOKENS, temperature: 0, ignore_eos: true, stream: true });
  const answer = await fetch(`${url}/v1/completions`, { method: 'POST', headers: { 'content-type': 'application/json' }, body });
  let first, text = '';
  for await (const chunk of answer.body) {
    first ??= performance.now();
    text += Buffer.from(chunk).toString('latin1');
  }
  if (!text.includes('"finish_reason":"length"')) throw new Error(text.slice(-300));
  return first;
};

/** llama.cpp in this process. */
async function binding() {
  const { getLlama } = await import(pathToFileURL(join(process.env.PEER_TOOLS ?? '.', 'node_modules/node-llama-cpp/dist/index.js')));
  const llama = await getLlama({ gpu: false, build: 'never', logLevel: 'error' });
  const model = await llama.loadModel({ modelPath: file });
  const context = await model.createContext({
    contextSize: 256, sequences: 16, batchSize: 512, threads: Number(threads), flashAttention: false,
  });
  const sequences = Array.from({ length: 16 }, () => context.getSequence());
  const one = async (ids, i) => {
    const sequence = sequences[i];
    await sequence.clearHistory();
    let first, n = 0;
    for await (const _ of sequence.evaluate(ids, { temperature: 0, yieldEogToken: true })) {
      first ??= performance.now();
      if (++n === TOKENS) break;
    }
    if (n !== TOKENS) throw new Error(`${n} tokens`);
    return first;
  };
  return { one, name: `node-llama-cpp ${JSON.stringify(llama.buildType)} (${llama.cpuMathCores} cores)` };
}

/** llama.cpp's own server, with room for as many texts, on a port that is free. */
async function peerServer() {
  const port = await new Promise((found) => {
    const s = createServer().listen(0, '127.0.0.1', () => {
      const { port } = s.address();
      s.close(() => found(port));
    });
  });
  const args = ['-m', file, '-t', threads, '-tb', threads, '-np', '16', '-c', String(16 * 256), '--host', '127.0.0.1', '--port', String(port)];
  const url = await started(peer, args, new RegExp(`(http://127.0.0.1:${port})`));
  return { one: client(url), name: 'llama-server' };
}

const url = await started(process.env.ISOBIT ?? 'target/release/isobit',
  ['serve', file, '--port', '0', '--parallel', '16', '-c', '256', '-t', threads, '--device', 'cpu'],
  /listening on (http:[^\s]+)[^]*texts at once/);
const ours = client(url);
const { one: theirs, name } = peer ? await peerServer() : await binding();

const median = (list) => list.sort((a, b) => a - b)[list.length >> 1];
console.log(`isobit serve, and ${name}, ${threads} threads: ${file}`);
console.log('clients | isobit tokens/s | first token ms | llama.cpp tokens/s | first token ms');
for (const clients of CLIENTS) {
  const a = [], b = [];
  for (let i = 0; i < ROUNDS; i++) {
    a.push(await round(clients, ours));
    b.push(await round(clients, theirs));
  }
  const of = (list, key) => median(list.map((x) => x[key])).toFixed(key === 'rate' ? 1 : 0);
  console.log(`${clients} | ${of(a, 'rate')} | ${of(a, 'first')} | ${of(b, 'rate')} | ${of(b, 'first')}`);
}
process.exit(0);
