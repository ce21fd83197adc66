// Runs a handler of aws-cdk-lib with answers in place of the SDK's and of CloudFormation, and prints what it called and responded.
// Standard input: {file, handler, event, answers}; an answer is {result} or {error: {name, message}}.
const Module = require("module");
const { Readable } = require("stream");
const given = JSON.parse(require("fs").readFileSync(0, "utf8"));
const calls = [];
const responses = [];

function answer(action, input) {
  calls.push([action, input]);
  const { result, error } = given.answers.shift();
  if (error) throw Object.assign(new Error(error.message), { name: error.name });
  const revive = (value) => {
    if (value && value.$time) return new Date(value.$time);
    if (value && value.$bytes !== undefined) return Buffer.from(value.$bytes);
    if (Array.isArray(value)) return value.map(revive);
    if (value && typeof value === "object") return Object.fromEntries(Object.entries(value).map(([k, v]) => [k, revive(v)]));
    return value;
  };
  return { $metadata: {}, ...revive(result) };
}

class Client {
  constructor(config) {
    this.config = { region: async () => config.region ?? process.env.AWS_REGION };
    for (const action of ["invoke", "startExecution"]) this[action] = async (input) => answer(action, input);
  }
  async send(command) {
    return answer(command.constructor.action, command.input);
  }
}

function sdk() {
  const named = { TheClient: Client, Lambda: Client, SFN: Client, CloudWatchLogsClient: Client };
  for (const action of given.actions) {
    named[`${action}Command`] = class {
      static action = action;
      constructor(input) {
        this.input = input;
      }
    };
  }
  return named;
}

const load = Module._load;
Module._load = function (name, ...more) {
  if (name.startsWith("@aws-sdk/")) return sdk();
  if (name === "https") {
    const request = (options, done) => {
      const sent = { on() {}, write(body) { responses.push(JSON.parse(body)); }, end() { setImmediate(() => done(Object.assign(Readable.from([]), { statusCode: 200 }))); } };
      return sent;
    };
    return { ...load.call(this, name, ...more), request };
  }
  return load.call(this, name, ...more);
};
console.log = () => {};
(async () => {
  let raised = null;
  try {
    await require(given.file)[given.handler](given.event, { logStreamName: "the-stream", functionName: "the-function" });
  } catch (error) {
    raised = error.message;
  }
  process.stdout.write(JSON.stringify({ calls, responses, raised }));
})();
