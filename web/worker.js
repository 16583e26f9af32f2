// SPDX-License-Identifier: Apache-2.0
// Answers questions beside the page, so that the page stays awake: the core (core.cc, as WebAssembly) in a small
// world of its own, which holds the shipped files and a clock, and nothing else of the machine.
'use strict';
const encoder = new TextEncoder(), decoder = new TextDecoder('utf-8', {fatal: true});
let core, files, folders;

// The files by their paths, and what each folder holds.
function lay(given) {
  files = new Map(Object.entries(given).map(([path, text]) => [path, encoder.encode(text)]));
  folders = new Map([['', new Set()]]);
  for (const path of files.keys()) {
    const parts = path.split('/');
    for (let n = 1; n <= parts.length; ++n) {
      const above = parts.slice(0, n - 1).join('/'), here = parts.slice(0, n).join('/');
      folders.get(above).add(parts[n - 1]);
      if (n < parts.length && !folders.has(here)) folders.set(here, new Set());
    }
  }
}

class Exit extends Error {
  constructor(code) { super('exit ' + code); this.code = code; }
}

// The system of one instance (wasi_snapshot_preview1): files that are read, a clock, words on standard error.
function world(memory, said) {
  const DONE = 0, BAD = 8, MISSING = 44, NOT_HERE = 52, READ_ONLY = 69, ROOT = 3, CREATE = 1;
  const CHARACTER = 2, FOLDER = 3, FILE = 4;
  const open = new Map([[0, {}], [1, {}], [2, {}], [ROOT, {path: ''}]]);
  const view = () => new DataView(memory().buffer);
  const bytes = (at, n) => new Uint8Array(memory().buffer, at, n);
  const path = (folder, at, n) => {
    const parts = [];
    for (const part of (folder + '/' + decoder.decode(bytes(at, n))).split('/')) {
      if (part === '..') parts.pop(); else if (part && part !== '.') parts.push(part);
    }
    return parts.join('/');
  };
  const type = name => name === undefined ? CHARACTER : folders.has(name) ? FOLDER : FILE;
  const about = (name, at) => {
    bytes(at, 64).fill(0);
    view().setUint8(at + 16, type(name));
    view().setBigUint64(at + 24, 1n, true);
    if (type(name) === FILE) view().setBigUint64(at + 32, BigInt(files.get(name).length), true);
    return DONE;
  };
  const read = (from, at, lists, n, done) => {  // from `from` at `at`, into n pieces; how many bytes
    let got = 0;
    for (let i = 0; i < n; ++i) {
      const to = view().getUint32(lists + 8 * i, true), length = view().getUint32(lists + 8 * i + 4, true);
      const part = from.subarray(at + got, at + got + length);
      bytes(to, part.length).set(part);
      got += part.length;
    }
    view().setUint32(done, got, true);
    return got;
  };
  const offered = {
    environ_sizes_get: (count, size) => (view().setUint32(count, 0, true), view().setUint32(size, 0, true), DONE),
    environ_get: () => DONE,
    clock_time_get: (_id, _precision, at) => (view().setBigUint64(at, BigInt(Math.round(performance.now() * 1e6)), true), DONE),
    proc_exit: code => { throw new Exit(code); },
    fd_prestat_get: (fd, at) => {
      if (fd !== ROOT) return BAD;
      view().setUint32(at, 0, true);
      view().setUint32(at + 4, 1, true);
      return DONE;
    },
    fd_prestat_dir_name: (_fd, at) => (bytes(at, 1).set(encoder.encode('/')), DONE),
    fd_fdstat_get: (fd, at) => {
      if (!open.has(fd)) return BAD;
      bytes(at, 24).fill(0);
      view().setUint8(at, type(open.get(fd).path));
      view().setBigUint64(at + 8, ~0n & 0xffffffffffffffffn, true);
      view().setBigUint64(at + 16, ~0n & 0xffffffffffffffffn, true);
      return DONE;
    },
    fd_filestat_get: (fd, at) => open.has(fd) ? about(open.get(fd).path, at) : BAD,
    path_filestat_get: (fd, _follow, at, n, to) => {
      const name = path(open.get(fd).path, at, n);
      return files.has(name) || folders.has(name) ? about(name, to) : MISSING;
    },
    path_open: (fd, _follow, at, n, how, _rights, _inherited, _flags, to) => {
      if (how & CREATE) return READ_ONLY;
      const name = path(open.get(fd).path, at, n);
      if (!files.has(name) && !folders.has(name)) return MISSING;
      const made = Math.max(...open.keys()) + 1;
      open.set(made, {path: name, at: 0});
      view().setUint32(to, made, true);
      return DONE;
    },
    fd_read: (fd, lists, n, done) => {
      const file = open.get(fd);
      if (!file || !files.has(file.path)) return BAD;
      file.at += read(files.get(file.path), file.at, lists, n, done);
      return DONE;
    },
    fd_pread: (fd, lists, n, at, done) => {
      const file = open.get(fd);
      if (!file || !files.has(file.path)) return BAD;
      read(files.get(file.path), Number(at), lists, n, done);
      return DONE;
    },
    fd_readdir: (fd, at, size, from, used) => {
      const names = [...folders.get(open.get(fd).path)];
      let put = 0;
      for (let i = Number(from); i < names.length && put < size; ++i) {
        const name = encoder.encode(names[i]), entry = new Uint8Array(24 + name.length), fields = new DataView(entry.buffer);
        fields.setBigUint64(0, BigInt(i + 1), true);
        fields.setUint32(16, name.length, true);
        fields.setUint8(20, type([open.get(fd).path, names[i]].filter(Boolean).join('/')));
        entry.set(name, 24);
        const part = entry.subarray(0, size - put);
        bytes(at + put, part.length).set(part);
        put += part.length;
      }
      view().setUint32(used, put, true);
      return DONE;
    },
    fd_close: fd => open.delete(fd) ? DONE : BAD,
    fd_write: (_fd, lists, n, done) => {
      let put = 0;
      for (let i = 0; i < n; ++i) {
        const length = view().getUint32(lists + 8 * i + 4, true);
        said(new TextDecoder().decode(bytes(view().getUint32(lists + 8 * i, true), length)));
        put += length;
      }
      view().setUint32(done, put, true);
      return DONE;
    },
  };
  return new Proxy(offered, {get: (all, name) => all[name] || (() => NOT_HERE)});
}

// {code, text, errors} of a command line without its first word.
async function ask(words) {
  let asks, died = '';
  const bytes = (at, n) => new Uint8Array(asks.memory.buffer, at, n);
  const kept = what => decoder.decode(bytes(asks[what](), asks[what + '_bytes']()));
  let code;
  try {
    const system = {wasi_snapshot_preview1: world(() => asks.memory, text => { died += text; })};
    asks = (await WebAssembly.instantiate(await core, system)).exports;
    asks._initialize();
    const question = encoder.encode(words.map(word => word + '\0').join('')), at = asks.allocate(question.length);
    bytes(at, question.length).set(question);
    code = asks.ask(at, question.length);
  } catch (error) {
    if (!(error instanceof Exit)) return {code: 3, text: '', errors: `rehearse: ended in this page: ${died || error}\n`};
    code = error.code;
  }
  return {code, text: kept('text'), errors: kept('errors')};
}

onmessage = async ({data}) => {
  if (data.core) {
    lay(data.files);
    core = WebAssembly.compile(data.core);  // questions wait for it
  } else {
    postMessage({id: data.id, ...await ask(data.words)});
  }
};
