"use strict";
// The kernel of jsii reads requests from descriptor 3, and answers there. jsii's own start is a process that passes both on, between
// that descriptor and its standard input and output, which is a fourth of a synthesis. Here they are the kernel's own. What it prints
// goes to standard error as that process writes it.
const fs = require("fs");
const path = require("path");
const { Writable } = require("stream");

const { readSync, writeSync } = fs;
fs.readSync = (descriptor, ...rest) => readSync(descriptor === 3 ? 0 : descriptor, ...rest);
fs.writeSync = (descriptor, ...rest) => writeSync(descriptor === 3 ? 1 : descriptor, ...rest);
for (const name of ["stdout", "stderr"]) {
  // In place of Node's own, which would no longer wait where a pipe is full.
  const write = (bytes, _, done) => {
    writeSync(2, `${JSON.stringify({ [name]: bytes.toString("base64") })}\n`);
    done();
  };
  Object.defineProperty(process, name, { value: new Writable({ write }) });
}
require(path.join(__dirname, "lib", "program.js"));
