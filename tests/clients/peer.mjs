// Tokens a second and time to first token of `isobit serve` and, beside it, of llama.cpp through the npm package
// node-llama-cpp (in this process, without HTTP), for 1, 4 and 16 clients at once on one model file.
//
//     PEER_TOOLS=FOLDER ISOBIT=target/release/isobit node tests/clients/peer.mjs MODEL.gguf [THREADS [ROUNDS]]
//
// FOLDER: where npm has installed `node-llama-cpp`. Each client has a prompt of 64 token ids of its own and takes 32 greedy
// tokens. Rounds take turns, so that what else the machine does meets both.
import { spawn } from 'node:child_process';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';

const [file, threads = '2', rounds = '3'] = process.argv.slice(2);
const folder = process.env.PEER_TOOLS ?? '.';
const { getLlama } = await import(pathToFileURL(join(folder, 'node_modules/node-llama-cpp/dist/index.js')));
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

const llama = await getLlama({ gpu: false, build: 'never', logLevel: 'error' });
const model = await llama.loadModel({ modelPath: file });
const context = await model.createContext({
  contextSize: 256, sequences: 16, batchSize: 512, threads: Number(threads), flashAttention: false,
});
const sequences = Array.from({ length: 16 }, () => context.getSequence());
async function theirs(ids, i) {
  const sequence = sequences[i];
  await sequence.clearHistory();
  let first, n = 0;
  for await (const _ of sequence.evaluate(ids, { temperature: 0, yieldEogToken: true })) {
    first ??= performance.now();
    if (++n === TOKENS) break;
  }
  if (n !== TOKENS) throw new Error(`${n} tokens`);
  return first;
}

const server = spawn(process.env.ISOBIT ?? 'target/release/isobit',
  ['serve', file, '--port', '0', '--parallel', '16', '-c', '256', '-t', threads, '--device', 'cpu'], { stdio: ['ignore', 'ignore', 'pipe'] });
const url = await new Promise((found) => {
  let said = '';
  server.stderr.on('data', (d) => {
    said += d;
    const hit = said.match(/listening on (http:\S+)/);
    if (hit && said.includes('texts at once')) found(hit[1]);
  });
});
async function ours(ids) {
  const body = JSON.stringify({ prompt: ids, max_tokens: TOKENS, temperature: 0, ignore_eos: true, stream: true });
  const answer = await fetch(`${url}/v1/completions`, { method: 'POST', body });
  let first, text = '';
  for await (const chunk of answer.body) {
    first ??= performance.now();
    text += Buffer.from(chunk).toString('latin1');
  }
  if (!text.includes('"finish_reason":"length"')) throw new Error(text.slice(-300));
  return first;
}

const median = (list) => list.sort((a, b) => a - b)[list.length >> 1];
console.log(`isobit serve, and node-llama-cpp ${JSON.stringify(llama.buildType)} (${llama.cpuMathCores} cores), ${threads} threads: ${file}`);
console.log('clients | isobit tokens/s | first token ms | llama.cpp tokens/s | first token ms');
try {
  for (const clients of CLIENTS) {
    const a = [], b = [];
    for (let i = 0; i < ROUNDS; i++) {
      a.push(await round(clients, ours));
      b.push(await round(clients, theirs));
    }
    const of = (list, key) => median(list.map((x) => x[key])).toFixed(key === 'rate' ? 1 : 0);
    console.log(`${clients} | ${of(a, 'rate')} | ${of(a, 'first')} | ${of(b, 'rate')} | ${of(b, 'first')}`);
  }
} finally {
  server.kill();
}
process.exit(0);
