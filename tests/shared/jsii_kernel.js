"use strict";
// The kernel of jsii reads requests from descriptor 3, and answers there. jsii's own start is a process that passes both on, between
// that descriptor and its standard input and output, which is a fourth of a synthesis. Here they are the kernel's own. What it prints
// goes to standard error as that process writes it.
const fs = require("fs");
const path = require("path");

const { readSync, writeSync } = fs;
fs.readSync = (descriptor, ...rest) => readSync(descriptor === 3 ? 0 : descriptor, ...rest);
fs.writeSync = (descriptor, ...rest) => writeSync(descriptor === 3 ? 1 : descriptor, ...rest);
for (const name of ["stdout", "stderr"]) {
  process[name].write = (text, ...rest) => {
    const bytes = Buffer.from(text, typeof rest[0] === "string" ? rest[0] : "utf8");
    writeSync(2, `${JSON.stringify({ [name]: bytes.toString("base64") })}\n`);
    rest.filter((one) => typeof one === "function").forEach((done) => done());
    return true;
  };
}
require(path.join(__dirname, "lib", "program.js"));
