// Prints what speedscope's importer makes of a file of text: for each profile its name, and its stacks from the root with their weights.
// Arguments: the directory of the npm package's release, and the file.
'use strict';
const fs = require('fs');
const path = require('path');
const vm = require('vm');

const [directory, text] = process.argv.slice(2);
const noise = { log() {}, warn() {}, error() {} };
const page = vm.createContext({ console: noise, TextDecoder, setTimeout, Uint8Array, ArrayBuffer });
page.window = page.self = page;

// Each file adds its modules to `parcelRequire` first and then starts the page, which fails here.
const load = (prefix) => {
  const name = fs.readdirSync(directory).find((name) => name.startsWith(prefix) && name.endsWith('.js'));
  try {
    vm.runInContext(fs.readFileSync(path.join(directory, name), 'utf8'), page);
  } catch (_) {}
  return page.parcelRequire;
};
load('speedscope.');
const bundle = load('import.');
const importer = Object.keys(bundle.modules)
  .map((id) => bundle(id))
  .find((module) => module.importProfileGroupFromText);

importer.importProfileGroupFromText(path.basename(text), fs.readFileSync(text, 'utf8')).then((group) => {
  const stack = (node) => (node.isRoot() ? [] : [...stack(node.parent), node.frame.name]);
  const profiles = group.profiles.map((profile) => ({
    name: profile.getName(),
    stacks: profile.samples.map(stack),
    weights: profile.weights,
  }));
  console.log(JSON.stringify(profiles));
});
