// The page in a real Chromium: what a reader, a keyboard and a hostile model do to it.
//
//     node tests/page/page.mjs [URL]
//
// Without a URL it runs against the mock server beside it, which answers fast, slowly, in pieces, with errors, not at all;
// with one, against a server that runs there, and only what holds of any server and model. It needs playwright-core and
// axe-core in $ISOBIT_PAGE_TOOLS/node_modules and a Chromium at $CHROMIUM (/usr/bin/chromium). $ISOBIT_PAGE_SHOTS names a
// folder for pictures. .ci/page does all of it.
import { readFileSync, writeFileSync, mkdtempSync } from 'node:fs';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { EVIL, mock } from './mock.mjs';

const require = createRequire(join(process.env.ISOBIT_PAGE_TOOLS ?? process.cwd(), 'x.js'));
const { chromium } = require('playwright-core');
const axe = readFileSync(require.resolve('axe-core/axe.min.js'), 'utf8');
const target = process.argv[2];
const shots = process.env.ISOBIT_PAGE_SHOTS;

function check(holds, what) {
  if (!holds) throw new Error(what);
}
function equal(got, wanted, what) {
  check(JSON.stringify(got) === JSON.stringify(wanted), `${what}: ${JSON.stringify(got)} where ${JSON.stringify(wanted)} was expected`);
}

const browser = await chromium.launch({ executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium', args: ['--no-sandbox'] });
const failures = [];
const figures = [];
let done = 0;

/** Runs `body` on a fresh profile. Words on the console, errors of scripts and requests elsewhere fail it. */
async function test(name, body, { expect = [], set = {}, ...options } = {}) {
  if (process.env.ISOBIT_PAGE_ONLY && !name.includes(process.env.ISOBIT_PAGE_ONLY)) return;
  const server = target ? null : mock();
  if (server) Object.assign(server.options, set);
  const url = target ?? (await server.listen());
  const context = await browser.newContext({ viewport: { width: 1280, height: 860 }, bypassCSP: false, ...options });
  const page = await context.newPage();
  page.setDefaultTimeout(target ? 60000 : 6000);
  const said = [];
  page.on('console', (m) => { if (['error', 'warning'].includes(m.type())) said.push(m.text()); });
  page.on('pageerror', (e) => said.push(String(e.stack)));
  page.on('dialog', (d) => { said.push('a dialog: ' + d.message()); d.dismiss(); });
  page.on('request', (r) => { if (!r.url().startsWith(url) && !/^(data|blob):/.test(r.url())) said.push('a request to ' + r.url()); });
  const started = performance.now();
  try {
    await page.goto(url);
    await body({ page, server, url, context });
    // a status that is not 2xx is always an error on the console
    const left = said.filter((s) => !expect.some((e) => s.includes(e)));
    equal(left, [], 'words on the console');
    console.log(`ok   ${name} (${((performance.now() - started) / 1000).toFixed(1)} s)`);
  } catch (e) {
    failures.push(name);
    console.log(`FAIL ${name}\n     ${String(e.stack).split('\n').slice(0, 6).join('\n     ')}\n     console: ${said.join(' | ').slice(0, 600)}`);
    if (shots) await page.screenshot({ path: join(shots, `failed-${failures.length}.png`) }).catch(() => {});
  }
  done++;
  await context.close();
  server?.server.close();
  server?.server.closeAllConnections();
}
const ready = (page) => page.waitForSelector('#lamp.ok');
async function ask(page, words, wait = true) {
  await page.fill('#input', words);
  await page.press('#input', 'Enter');
  if (!wait) return;
  await page.waitForSelector('#stop:not([hidden])', { timeout: 2000 }).catch(() => {});
  await page.waitForSelector('#stop', { state: 'hidden' });
}
const lastAnswer = (page) => page.locator('.turn.a').last();
async function axeFinds(page, what) {
  // the policy of the page holds for script tags; this goes around it, as extensions do
  await page.evaluate(axe);
  const found = await page.evaluate(async () => (await window.axe.run(document, { resultTypes: ['violations'] })).violations
    .map((v) => `${v.impact} ${v.id}: ${v.nodes.slice(0, 3).map((n) => n.target.join(' ') + ' ' + (n.any[0]?.message ?? '').slice(0, 140)).join(' | ')}`));
  equal(found.filter((f) => /^(serious|critical|moderate)/.test(f)), [], 'axe on ' + what);
  return found.length;
}
const noOverflow = async (page, what) => {
  const [wide, width] = await page.evaluate(() => [document.documentElement.scrollWidth, innerWidth]);
  check(wide <= width, `${what} is ${wide} px wide in ${width}`);
};

if (target) {
  await test('the page talks to this server', async ({ page, url }) => {
    const response = await page.request.get(url);
    const csp = response.headers()['content-security-policy'] ?? '';
    check(csp.includes("default-src 'none'") && !csp.includes('unsafe-eval'), 'no strict policy: ' + csp);
    await ready(page);
    await page.click('#t-set');
    await page.fill('#s-max_tokens', '24');
    await page.fill('#s-temperature', '0');
    await page.click('#t-inst');
    await ask(page, 'Once upon a time');
    equal(await page.locator('.err').allInnerTexts(), [], 'errors');
    check((await lastAnswer(page).locator('.body').last().innerText()).length > 3, 'no text');
    check(await lastAnswer(page).locator('.t').count() > 3, 'no tokens with probabilities');
    const first = await page.locator('#p-inst .hex').first().innerText();
    check(/^[0-9a-f]{16,}$/.test(first.replace(/\s/g, '')), 'no digest: ' + first);
    const props = await (await page.request.get(url + '/props')).json();
    const limit = props.isobit.limit.decode_tokens_per_second;
    check(Number.isFinite(limit) && limit > 0, `the server knows no limit of its device: ${limit}`);
    const panel = await page.locator('#p-inst').innerText();
    check(/\d+ % of [\d,.]+ t\/s/.test(panel), `the panel lacks the device's limit: ${panel}`);
    await page.click('text=Verify on the CPU');
    await page.waitForSelector('.verdict', { timeout: 120000 });
    check((await page.locator('.verdict').innerText()).startsWith('Equal'), await page.locator('.verdict').innerText());
    await lastAnswer(page).getByRole('button', { name: 'Again, in a new branch' }).click();
    await page.waitForSelector('#stop', { state: 'hidden' });
    equal(await page.locator('#p-inst .hex').first().innerText(), first, 'the digest of the same request');
    await page.click('#v-runs');
    await page.waitForSelector('.runs');
    equal((await page.locator('#runs').innerText()).includes('keeps no runs'), !props.isobit.record, 'what is said of runs that are kept');
    await axeFinds(page, 'the real server');
    if (shots) await page.screenshot({ path: join(shots, 'real.png') });
  });
  await test('an answer is stopped', async ({ page }) => {
    await ready(page);
    // a small model's answer may be there before anything comes from outside, even from within the page: then once more
    let foot = '';
    for (let i = 0; i < 5 && !foot.includes('stopped'); i++) {
      await page.evaluate((before) => new MutationObserver((_, watch) => {
        if (document.querySelectorAll('.turn.a').length === before || !document.querySelector('.turn.a:last-of-type .t')) return;
        watch.disconnect();
        document.activeElement.dispatchEvent(new KeyboardEvent('keydown', { key: 'Escape', bubbles: true }));
      }).observe(document.body, { childList: true, subtree: true }), await page.locator('.turn.a').count());
      await ask(page, 'Once upon a time, in a very long story', false);
      await page.waitForSelector('.turn.a .t');
      await page.waitForSelector('#stop', { state: 'hidden' });
      foot = await lastAnswer(page).locator('.foot').innerText();
    }
    check(foot.includes('stopped'), 'it does not say that it was stopped');
  });
} else {
  await test('an answer streams in, with figures, tokens and digest', async ({ page, server }) => {
    await ready(page);
    equal(await page.title(), 'tiny-stories · isobit', 'title');
    await ask(page, 'tell of a fox');
    const body = lastAnswer(page).locator('.body').last();
    const wanted = "there was a little fox who lived at the edge of a quiet forest. Every morning she counted the stones of the old bridge, and every evening she counted them again. \"They are the same,\" she said, \"whoever counts them.\" One day the river rose, and a naïve young badger 🦡 asked her how she could be so sure. She showed him: one, two, three — and the number came out equal.";
    equal(await body.innerText(), wanted, 'the text');
    // every character belongs to a token, the badger too, which came in two
    equal(await body.locator('.t').evaluateAll((all) => all.map((s) => s.textContent).join('')), wanted, 'the tokens');
    const sent = server.seen.chats[0];
    check(sent.stream && sent.stream_options.include_usage && sent.logprobs && sent.top_logprobs === 5 && sent.receipt && !('temperature' in sent), JSON.stringify(sent));
    const panel = await page.locator('#p-inst').innerText();
    for (const w of ['tokens/s written', '% of 118 t/s', 'Prompt read at', '436 tokens/s', '8 of ', '22 used, 9 kept of 128', 'llvmpipe', 'isobit arithmetic 7']) check(panel.includes(w), `the panel lacks ${w}: ${panel}`);
    await body.locator('.t').nth(4).hover();
    check((await page.locator('#tip').innerText()).includes('␣fox'), 'the tip names another token');
    equal(await page.locator('#tip .alt').count(), 5, 'alternatives');
  });
  await test('verify: equal, a token, logits, an error', async ({ page, server }) => {
    await ready(page);
    await ask(page, 'tell of a fox');
    const verdict = async () => {
      await page.click('#p-inst .acts .go');
      await page.waitForSelector('#p-inst .checking');
      await page.waitForSelector('#p-inst .verdict');
      return page.locator('#p-inst .verdict').innerText();
    };
    check(/^Equal/.test(await verdict()), 'equal');
    server.options.check = 'token';
    const text = await verdict();
    check(text.includes('token 6, position 17') && text.includes('" to" (311)') && text.includes('" <b>of" (320)'), text);
    server.options.check = 'logits';
    check((await verdict()).includes('logits'), 'logits');
    server.options.check = 'error';
    check((await verdict()).includes('not enough memory'), 'error');
    server.options.checkMs = 60000;
    await page.click('#p-inst .acts .go');
    await page.click('text=Stop verifying');
    await page.waitForSelector('#p-inst .checking', { state: 'detached' });
  }, { expect: ['500'] });
  await test('stop, again, edit, branches', async ({ page, server }) => {
    await ready(page);
    await ask(page, 'slow 40 fox', false);
    await page.waitForSelector('.turn.a .t');
    await page.keyboard.press('Escape');
    await page.waitForSelector('#stop', { state: 'hidden' });
    check((await lastAnswer(page).innerText()).includes('stopped'), 'stopped');
    await page.waitForTimeout(150);
    equal(server.seen.aborted, 1, 'requests that ended early');
    await lastAnswer(page).getByRole('button', { name: 'Again' }).click();
    await page.waitForSelector('#stop:not([hidden])');
    await page.click('#stop');
    await page.waitForSelector('#stop', { state: 'hidden' });
    check((await lastAnswer(page).innerText()).includes('2/2'), 'two branches');
    await lastAnswer(page).getByRole('button', { name: 'The branch before' }).click();
    check((await lastAnswer(page).innerText()).includes('1/2'), 'the first branch');
    await page.locator('.turn.user').getByRole('button', { name: /^Edit/ }).click();
    await page.keyboard.press('Control+A');
    await page.keyboard.type('think of it');
    await page.keyboard.press('Enter');
    await page.waitForSelector('#stop', { state: 'hidden' });
    check((await page.locator('.turn.user').innerText()).includes('2/2'), 'the edited message is a branch');
    equal(server.seen.chats.at(-1).messages, [{ role: 'user', content: 'think of it' }], 'what is sent');
    check((await page.locator('.think summary').innerText()).startsWith('Reasoning'), 'reasoning');
    equal(await page.locator('.think').evaluate((d) => d.open), false, 'reasoning is open after it ended');
    check((await page.locator('.think .t').count()) > 5 && (await lastAnswer(page).locator('strong').innerText()) === 'the same', 'tokens in reasoning and markdown');
    await page.locator('.turn.user').getByRole('button', { name: 'The branch before' }).click();
    check((await page.locator('.turn.user').innerText()).includes('slow 40'), 'the first question');
  });
  await test('errors in words, and again', async ({ page, server }) => {
    await ready(page);
    await ask(page, 'refuse this');
    let words = await page.locator('.err').last().innerText();
    check(words.includes('The server refused') && words.includes('top_k is 0 or more') && words.includes('field: top_k'), words);
    await ask(page, 'too big');
    check((await page.locator('.err').last().innerText()).includes('shorter text'), 'no help');
    await ask(page, 'broken');
    words = await lastAnswer(page).innerText();
    check(words.includes('there was a little') && words.includes('the device was lost'), words);
    await ask(page, 'cutoff');
    check((await lastAnswer(page).locator('.err').innerText()).length > 10, 'an answer that was cut off says nothing');
    server.options.busy = 1;
    await ask(page, 'fox', false);
    await page.waitForSelector('.wait:not([hidden])');
    check((await lastAnswer(page).locator('.wait').innerText()).includes('all texts are taken'), 'busy');
    await page.waitForSelector('#stop', { state: 'hidden' });
    check((await lastAnswer(page).innerText()).includes('badger'), 'no answer after the server was busy');
    server.server.closeAllConnections();
    await new Promise((d) => server.server.close(d));
    await ask(page, 'nobody there');
    check((await lastAnswer(page).locator('.err').innerText()).includes('cannot be reached'), 'a server that is gone');
    await server.listen(Number(new URL(page.url()).port));
    await lastAnswer(page).getByRole('button', { name: 'Try again' }).click();
    await page.waitForFunction(() => [...document.querySelectorAll('.turn.a')].at(-1).innerText.includes('badger'));
  }, { expect: ['400', '503', 'ERR_'] });
  await test('a server that loads is waited for', async ({ page }) => {
    await page.waitForSelector('#n-server');
    check((await page.locator('#n-server').innerText()).includes('loading its model'), 'loading');
    await ask(page, 'fox', false);
    await page.waitForSelector('.wait:not([hidden])');
    check((await page.locator('.turn .wait').innerText()).includes('goes out when it is ready'), 'the message waits');
    await ready(page);
    await page.waitForFunction(() => document.querySelector('.turn.a')?.innerText.includes('badger'));
    equal(await page.locator('#n-server').count(), 0, 'the notice');
  }, { expect: ['503'], set: { loadingUntil: Date.now() + 2500 } });
  await test('a key is asked for, and kept for the tab only', async ({ page }) => {
    await page.waitForSelector('#key[open]');
    await page.fill('#key-in', 'wrong');
    await page.keyboard.press('Enter');
    await page.waitForFunction(() => document.getElementById('key').open && document.getElementById('key-p').textContent.includes('did not take'));
    await page.keyboard.press('Escape');
    await page.waitForSelector('#n-key');
    await page.click('text=Enter the key');
    await page.fill('#key-in', 's3cret');
    await page.keyboard.press('Enter');
    await ready(page);
    await ask(page, 'fox');
    check((await lastAnswer(page).innerText()).includes('badger'), 'answer');
    equal(await page.evaluate(() => [sessionStorage.getItem('isobit.key'), JSON.stringify(localStorage).includes('s3cret')]), ['s3cret', false], 'where the key is');
  }, { expect: ['401'], set: { key: 's3cret' } });
  await test('a model without a template goes on with text', async ({ page, server }) => {
    await ready(page);
    check((await page.locator('#mode-hint').innerText()).includes('no chat template'), 'hint');
    equal(await page.locator('#m-chat').isDisabled(), true, 'chat is off');
    await ask(page, 'Once upon a time');
    equal(server.seen.requests.filter((r) => r.startsWith('POST')), ['POST /v1/completions'], 'routes');
    equal(server.seen.chats[0].prompt, 'Once upon a time', 'prompt');
    equal(server.seen.chats[0].logprobs, 5, 'logprobs');
    const text = await lastAnswer(page).locator('.body').last().evaluate((e) => e.textContent);
    check(text.startsWith(' there was'), text);
    check((await lastAnswer(page).locator('.t').count()) > 40, 'tokens');
    await page.click('text=Go on');
    await page.waitForSelector('#stop', { state: 'hidden' });
    await page.waitForFunction(() => document.querySelectorAll('.turn.a').length === 2);
    equal(server.seen.chats[1].prompt, 'Once upon a time' + text, 'what the second part goes on from');
  }, { set: { chatTemplate: '' } });
  await test('markdown, tools, a system prompt, settings', async ({ page, server }) => {
    await ready(page);
    await page.click('#sum');
    await page.fill('#system', 'Be short.');
    await page.fill('#s-temperature', '0.2');
    await page.fill('#s-seed', '42');
    await page.fill('#s-stop', 'END\n\\n\\n');
    await page.selectOption('#s-form', 'schema');
    await page.fill('#s-schema', '{"type": ');
    await ask(page, 'markdown please');
    check((await page.locator('#w-schema').innerText()).includes('not JSON'), 'a wrong schema');
    equal(server.seen.chats.length, 0, 'requests with a wrong schema');
    await page.fill('#s-schema', '{"type": "object"}');
    await page.locator('.err button').click();
    await page.waitForSelector('.code');
    await page.waitForSelector('#stop', { state: 'hidden' });
    const sent = server.seen.chats[0];
    equal([sent.messages[0], sent.temperature, sent.seed, sent.stop, sent.response_format.json_schema.schema], [{ role: 'system', content: 'Be short.' }, 0.2, 42, ['END', '\n\n'], { type: 'object' }], 'the request');
    const body = lastAnswer(page).locator('.body').last();
    equal(await body.evaluate((b) => ['strong', 'em', 'h3', 'pre', 'ol > li', 'ul li', 'table tr', 'blockquote', 'a[href]', 'code'].map((q) => b.querySelectorAll(q).length)), [2, 2, 1, 1, 3, 2, 3, 1, 1, 5], 'markdown');
    equal(await body.locator('pre').innerText(), 'a, b, c = 1e16, -1e16, 1.0\nprint((a + b) + c)  # 1.0\nprint(a + (b + c))  # 0.0', 'code');
    await page.click('#md');
    check((await body.innerText()).includes('**not associative**'), 'plain text');
    await page.click('#md');
    await page.selectOption('#s-form', 'free');
    await ask(page, 'use a tool');
    check((await lastAnswer(page).locator('.call').innerText()).includes('"city": "Bergen"'), 'tool call');
    await lastAnswer(page).locator('textarea').fill('fox weather: 7 degrees');
    await page.click('text=Send the results');
    await page.waitForFunction(() => [...document.querySelectorAll('.turn.a')].at(-1).innerText.includes('badger'));
    equal(server.seen.chats.at(-1).messages.slice(-2), [{ role: 'assistant', content: '', tool_calls: [{ id: 'call_0', type: 'function', function: { name: 'get_weather', arguments: '{"city":"Bergen","unit":"celsius"}' } }] }, { role: 'tool', tool_call_id: 'call_0', content: 'fox weather: 7 degrees' }], 'messages');
  });
  await test('conversations are kept, named, deleted, exported, imported; no room is said', async ({ page, context, url }) => {
    await ready(page);
    await ask(page, 'first fox');
    await page.keyboard.press('Control+k');
    await ask(page, 'second fox');
    equal(await page.locator('#convs li').count(), 2, 'conversations');
    await page.reload();
    await ready(page);
    equal(await page.locator('#convs li').count(), 2, 'conversations after a reload');
    check((await lastAnswer(page).locator('.t').count()) > 40, 'tokens after a reload');
    await page.getByRole('button', { name: 'Rename: first fox' }).click();
    await page.keyboard.type('<b>named</b>');
    await page.keyboard.press('Enter');
    check((await page.locator('#convs').innerText()).includes('<b>named</b>'), 'renamed');
    const [saved] = await Promise.all([page.waitForEvent('download'), page.click('#export')]);
    const file = join(mkdtempSync(join(tmpdir(), 'page-')), 'all.json');
    await saved.saveAs(file);
    equal(JSON.parse(readFileSync(file, 'utf8')).conversations.length, 2, 'exported');
    await page.getByRole('button', { name: 'Delete: <b>named</b>' }).click();
    equal(await page.locator('#convs li').count(), 1, 'after deleting');
    await page.click('#toast button');
    equal(await page.locator('#convs li').count(), 2, 'after undoing');
    const fresh = await (await browser.newContext()).newPage();
    await fresh.goto(url);
    await fresh.setInputFiles('#file', file);
    await fresh.waitForFunction(() => document.querySelectorAll('#convs .pick').length >= 2 && document.body.innerText.includes('<b>named</b>'));
    // files that are not what they say
    for (const bad of ['nonsense', '{"conversations": 1}', '{"conversations": [1, {"nodes": [{"id": "a", "parent": "b", "role": "user"}]}, {"nodes": [], "leaf": "x"}]}', '{"conversations": [{"nodes": [{"id": "__proto__", "role": "assistant", "text": {"a": 1}, "tokens": [[1, "x", "c", -5, 1e9, "t"], null, 3], "calls": [1], "usage": {"prompt_tokens": "<img>"}}], "leaf": "__proto__", "title": "odd"}]}']) {
      writeFileSync(file, bad);
      await fresh.setInputFiles('#file', file);
      await fresh.waitForSelector('#toast:not([hidden])');
      await fresh.waitForTimeout(50);
    }
    await fresh.getByRole('button', { name: /^odd/ }).click();
    await fresh.context().close();
    await page.evaluate(() => { Storage.prototype.setItem = () => { throw new DOMException('full', 'QuotaExceededError'); }; });
    await ask(page, 'fox without room');
    check((await page.locator('#n-quota').innerText()).includes('no room'), 'no room');
  });
  await test('runs: two side by side, where they part', async ({ page }) => {
    await ready(page);
    await page.click('#v-runs');
    await page.waitForSelector('.runs');
    await page.locator('[data-k^="a"]').nth(1).click();
    await page.locator('[data-k^="b"]').nth(0).click();
    await page.waitForSelector('.pair .diff');
    const words = await page.locator('#pair').innerText();
    check(words.includes('They part at token 13') && words.includes('Probabilities differ from token 7 on') && words.includes('What token 13 could have been'), words.slice(0, 400));
    equal(await page.locator('.pair .txt .diff').allInnerTexts(), [' quiet', ' small'], 'the marked tokens');
    check((await page.locator('.pair [data-walk]').first().innerText()).includes('badger 🦡 asked'), 'a character that came in two tokens');
    await page.locator('.pair .txt .t').nth(4).hover();
    check((await page.locator('#tip').innerText()).includes('in the other run'), 'the other run in the tip');
    equal(await page.locator('.cmp tr.first').count(), 1, 'the first row that differs');
    await page.getByRole('button', { name: 'Verify on the CPU' }).last().click();
    await page.waitForSelector('#pair .ok');
    await axeFinds(page, 'runs');
    if (shots) await page.screenshot({ path: join(shots, 'runs.png') });
  });
  await test('a server that keeps no runs', async ({ page }) => {
    await ready(page);
    await ask(page, 'fox');
    await lastAnswer(page).getByRole('button', { name: 'Again' }).click();
    await page.waitForSelector('#stop:not([hidden])');
    await page.waitForSelector('#stop', { state: 'hidden' });
    await page.getByRole('button', { name: 'Compare this answer' }).click();
    await page.waitForSelector('#pair .cmp');
    check((await page.locator('#runs').innerText()).includes('keeps no runs'), 'said');
  }, { set: { record: false } });
  await test('hostile text does nothing', async ({ page }) => {
    await ready(page);
    await ask(page, 'xss <img src=x onerror=window.hacked=20>');
    await page.click('#md');
    equal(await lastAnswer(page).locator('.body').last().innerText(), EVIL, 'the text as it is');
    await page.click('#md');
    await page.click('#probs');
    for (const t of [0, 5, 9]) await lastAnswer(page).locator('.body').last().locator('.t').nth(t).hover();
    await page.click('#v-runs');
    await page.locator('[data-k^="a"]').first().click();
    await page.waitForSelector('.pair [data-walk] .t');
    await page.click('#v-chat');
    equal(await page.evaluate(() => [window.hacked, document.querySelectorAll('main img, main iframe, main script, main svg[onload], a[href^="javascript"], [onerror], [onmouseover]').length]), [undefined, 0], 'what came of it');
    const links = await page.locator('.turn a').evaluateAll((all) => all.map((a) => [a.protocol, a.rel.includes('noopener')]));
    check(links.every(([p, rel]) => p === 'https:' && rel), JSON.stringify(links));
    // trusted types forbid markup from text at all
    const refused = await page.evaluate(() => { try { document.createElement('p').innerHTML = '<b>x</b>'; return false; } catch { return true; } });
    check(refused, 'the policy lets text become markup');
  }, { expect: ['TrustedHTML'], set: { alias: '<img src=x onerror=window.hacked=21>' } });
  await test('by the keyboard alone', async ({ page }) => {
    await ready(page);
    equal(await page.evaluate(() => document.activeElement.id), 'input', 'focus at the start');
    await page.keyboard.type('fox line one');
    await page.keyboard.press('Shift+Enter');
    await page.keyboard.type('line two');
    equal(await page.inputValue('#input'), 'fox line one\nline two', 'a new line');
    await page.keyboard.press('Enter');
    await page.waitForSelector('#stop:not([hidden])');
    await page.waitForSelector('#stop', { state: 'hidden' });
    equal(await page.evaluate(() => document.activeElement.id), 'input', 'focus after the answer');
    // back to the answer's tokens
    for (let i = 0; i < 12; i++) {
      await page.keyboard.press('Shift+Tab');
      if (await page.evaluate(() => document.activeElement.dataset.walk === 'c')) break;
    }
    await page.keyboard.press('ArrowRight');
    await page.keyboard.press('ArrowRight');
    check((await page.locator('#tip').innerText()).includes('token 2'), 'the second token');
    check((await page.locator('#live').innerText()).includes('%'), 'its probability is not said');
    check((await page.locator('#live').evaluate((l) => l.textContent)).length < 3000, 'the live region grows');
    await page.keyboard.press('Escape');
    equal(await page.locator('#tip').isHidden(), true, 'the tip');
    // every control is reached, named and shown to have the focus
    await page.focus('#skip');
    const seen = new Set(['skip']);
    for (let i = 0; i < 80; i++) {
      await page.keyboard.press('Tab');
      const at = await page.evaluate(() => {
        const e = document.activeElement;
        if (e === document.body) return null;
        const s = getComputedStyle(e);
        return { id: e.id || e.getAttribute('aria-label') || e.textContent.trim().slice(0, 30), outline: s.outlineStyle !== 'none' && parseFloat(s.outlineWidth) > 0 };
      });
      if (!at) break;
      check(at.outline, `${at.id} does not show the focus`);
      seen.add(at.id);
    }
    for (const id of ['skip', 'v-chat', 'v-runs', 'theme', 'new', 'export', 'import', 'm-chat', 'm-comp', 'probs', 'md', 'input', 'sum', 'send', 't-inst', 'p-inst', 'Copy the answer', 'Again, in a new branch']) check(seen.has(id), `${id} is not reached: ${[...seen]}`);
    await page.focus('#t-inst');
    await page.keyboard.press('ArrowRight');
    equal(await page.evaluate(() => [document.activeElement.id, document.getElementById('p-set').hidden]), ['t-set', false], 'tabs');
    await page.keyboard.press('Control+k');
    equal(await page.evaluate(() => [document.activeElement.id, document.querySelectorAll('.turn').length]), ['input', 0], 'a new chat');
  });
  for (const colorScheme of ['light', 'dark']) for (const width of [1280, 900, 360]) {
    await test(`${colorScheme}, ${width} px: axe, no sideways scroll`, async ({ page }) => {
      await ready(page);
      const shot = async (name) => { if (shots) await page.screenshot({ path: join(shots, `${colorScheme}-${width}-${name}.png`) }); };
      await axeFinds(page, 'the empty page');
      await shot('empty');
      for (const q of ['markdown', 'think', 'tool', 'broken']) await ask(page, q);
      await page.click('#probs');
      await noOverflow(page, 'the conversation');
      await axeFinds(page, 'a conversation');
      await shot('talk');
      if (width < 1100) await page.click('#open-panel');
      await page.click('#t-set');
      await page.waitForTimeout(250);
      await axeFinds(page, 'settings');
      await page.click('#t-inst');
      await shot('panel');
      if (width < 1100) await page.keyboard.press('Escape');
      if (width < 780) {
        await page.click('#open-rail');
        await page.waitForTimeout(250);
        await axeFinds(page, 'the list of conversations');
        await page.keyboard.press('Escape');
        equal(await page.evaluate(() => document.activeElement.id), 'open-rail', 'focus after the drawer');
      }
      await page.click('#v-runs');
      await page.locator('[data-k^="a"]').first().click();
      await page.locator('[data-k^="b"]').nth(1).click();
      await page.waitForSelector('.cmp');
      await noOverflow(page, 'runs');
      await axeFinds(page, 'runs');
    }, { colorScheme, viewport: { width, height: 800 }, expect: [] });
  }
  await test('the theme is switched by hand, and remembered', async ({ page }) => {
    const ground = () => page.evaluate(() => getComputedStyle(document.body).backgroundColor);
    const light = await ground();
    await page.click('#theme');
    await page.click('#theme');
    check((await ground()) !== light, 'dark is not dark');
    await page.reload();
    equal(await page.getAttribute('#theme', 'aria-label'), 'Theme: dark', 'after a reload');
  }, { colorScheme: 'light' });
  await test('ten thousand tokens', async ({ page }) => {
    await ready(page);
    await page.evaluate(() => {
      window.long = [];
      new PerformanceObserver((l) => window.long.push(...l.getEntries().map((e) => e.duration))).observe({ type: 'longtask' });
    });
    const start = performance.now();
    await ask(page, 'long 10000', false);
    await page.waitForFunction(() => document.getElementById('stop').hidden && document.querySelector('.foot .facts'), null, { timeout: 60000 });
    const took = (performance.now() - start) / 1000;
    const long = await page.evaluate(() => window.long);
    const spans = await page.locator('.turn.a .t').count();
    check(spans >= 10000, `${spans} tokens`);
    // typing in the text box beside it: from the key to the next frame
    const keys = [];
    for (let i = 0; i < 12; i++) {
      keys.push(await page.evaluate(() => new Promise((done) => {
        const t = performance.now();
        const input = document.getElementById('input');
        input.focus();
        input.setRangeText('x', 0, 0, 'end');
        input.dispatchEvent(new Event('input', { bubbles: true }));
        requestAnimationFrame(() => requestAnimationFrame(() => done(performance.now() - t)));
      })));
    }
    keys.sort((a, b) => a - b);
    await page.fill('#input', 'fox');
    const second = performance.now();
    await page.press('#input', 'Enter');
    await page.waitForFunction(() => document.querySelectorAll('.turn.a').length === 2 && document.querySelectorAll('.turn.a')[1].querySelector('.t'));
    const answer = performance.now() - second;
    await page.waitForSelector('#stop', { state: 'hidden' });
    const saved = await page.evaluate(() => JSON.stringify(localStorage).length);
    figures.push(`10,000 tokens: streamed in ${took.toFixed(1)} s, longest task ${Math.max(0, ...long).toFixed(0)} ms, all long tasks ${long.reduce((a, b) => a + b, 0).toFixed(0)} ms; a key to its frame ${keys[6].toFixed(0)} ms (worst ${keys.at(-1).toFixed(0)}); next answer's first token after ${answer.toFixed(0)} ms; ${(saved / 1e6).toFixed(1)} MB kept`);
    check(Math.max(0, ...long) < 1500 && keys[6] < 150, figures.at(-1));
  });
}
await browser.close();
const size = readFileSync(new URL('../../src/server/page.html', import.meta.url)).length;
if (size >= 150000) failures.push(`the page has ${size} bytes, 150,000 at most`);
console.log(figures.concat(`${done - failures.length} of ${done} passed; the page has ${size} bytes`).join('\n'));
process.exitCode = failures.length ? 1 : 0;
