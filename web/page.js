// SPDX-License-Identifier: Apache-2.0
// The page: a question is the command line without its first word. It stands in the address, its words joined by
// "+"; the worker answers (worker.js).
'use strict';
const $ = id => document.getElementById(id);

async function unpacked(id) {  // gzip in base64
  const bytes = Uint8Array.from(atob($(id).textContent), c => c.charCodeAt(0));
  return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream('gzip')));
}

const address = words => '#' + words.map(word => encodeURIComponent(word).replace(/%(3D|2C|2F|3A|5B|5D|7B|7D)/g, decodeURIComponent)).join('+');
const question = hash => hash.slice(1).split('+').filter(Boolean).map(decodeURIComponent);
// As a shell's line and back: words, quotes around what holds a blank or a quote.
const words = line => [...line.matchAll(/(?:[^\s'"]|'[^']*'|"[^"]*")+/g)].map(([word]) => word.replace(/'([^']*)'|"([^"]*)"/g, (_, a, b) => a ?? b));
const line = all => all.map(word => /[\s"]/.test(word) ? `'${word}'` : word).join(' ');

let core, files, worker, asked = 0, waiting = null;
const script = URL.createObjectURL(new Blob([$('worker').textContent], {type: 'text/javascript'}));
function start() {
  worker = new Worker(script);
  worker.onmessage = ({data}) => {
    if (waiting && data.id === asked) { const done = waiting; waiting = null; done(data); }
  };
  worker.postMessage({core, files});
}
// The answer {code, text, errors}. Whoever asks again gives up what was asked before.
function ask(words) {
  if (waiting) { worker.terminate(); waiting({code: 130, text: '', errors: ''}); start(); }
  return new Promise(done => { waiting = done; worker.postMessage({id: ++asked, words}); });
}

async function show() {
  const words = question(location.hash);
  $('question').value = line(words);
  $('link').disabled = $('markdown').disabled = !words.length;
  if (!words.length) return;
  const began = performance.now(), seconds = () => ((performance.now() - began) / 1000).toFixed(1) + ' s';
  const clock = setInterval(() => { $('state').textContent = 'computing, ' + seconds(); }, 100);
  const answer = ask(words), number = asked, {code, text, errors} = await answer;
  clearInterval(clock);
  if (number !== asked) return;  // somebody asked again
  $('answer').textContent = errors + text;
  $('answer').className = code ? 'bad' : '';
  $('state').textContent = `exit code ${code}, ${seconds()}`;
  page.shown = {words, code, text, errors};
}
function put(words) {
  if (address(words) === location.hash) show(); else location.hash = address(words);
}

function listen() {
  const fill = (select, names, chosen) => select.append(...names.map(name => new Option(name, name, false, name === chosen)));
  const named = folder => Object.keys(files).filter(path => path.startsWith(folder) && path.endsWith('.json') && !path.slice(folder.length).includes('/'))
      .map(path => path.slice(folder.length, -5));
  const shipped = 'usr/share/rehearse/scenarios/', plan = $('plan').elements, simulate = $('simulate').elements;
  fill(plan.model, named(shipped + 'models/'), 'llama3-8b');
  fill(plan.cluster, named(shipped + 'clusters/'), 'dgx-h100');
  fill(simulate.scenario, named(shipped), 'gpt3-175b-1024');
  const submits = (form, asked) => { $(form).onsubmit = event => { event.preventDefault(); put(asked()); }; };
  submits('plan', () => ['plan', plan.model.value, '--gpus', plan.gpus.value, '--on', plan.cluster.value, '--for', plan.framework.value]);
  submits('simulate', () => ['simulate', simulate.scenario.value]);
  submits('line', () => { const all = words($('question').value); return all[0] === 'rehearse' ? all.slice(1) : all; });
  const copies = (button, text) => { $(button).onclick = () => navigator.clipboard.writeText(text()); };
  copies('link', () => location.href);
  copies('markdown', () => `[\`rehearse ${$('question').value}\`](${location.href})\n\n\`\`\`\n${$('answer').textContent}\`\`\`\n`);
  $('own').onchange = async () => {  // they lie in the folder that questions are asked in, and in no link
    for (const file of $('own').files) files[file.name] = await file.text();
    worker.terminate();
    start();
  };
  addEventListener('hashchange', show);
}

// The page for who reads it by a script.
const page = globalThis.rehearsePage = {ask};
async function main() {
  core = await (await unpacked('core')).arrayBuffer();
  files = await (await unpacked('files')).json();
  start();
  listen();
  $('state').textContent = '';
  page.ready = true;
  await show();
}
main().catch(error => { $('state').textContent = String(error); });
