// The clients of the AWS SDK for JavaScript in the CDK CLI's bundle: `walk_javascript.js CLI` prints what each call came to.
const fs = require("fs");
const Module = require("module");
const path = require("path");

// Operations without required members, by the end of the client's package name.
const CALLS = {
  appsync: "ListGraphqlApis",
  "bedrock-agentcore-control": "ListAgentRuntimes",
  cloudcontrol: "ListResourceRequests",
  cloudformation: "ListStacks",
  cloudtrail: "DescribeTrails",
  "cloudwatch-logs": "DescribeLogGroups",
  codebuild: "ListProjects",
  ec2: "DescribeVpcs",
  ecr: "DescribeRepositories",
  ecs: "ListClusters",
  "elastic-load-balancing-v2": "DescribeLoadBalancers",
  iam: "ListRoles",
  kms: "ListKeys",
  lambda: "ListFunctions",
  "route-53": "ListHostedZones",
  s3: "ListBuckets",
  "secrets-manager": "ListSecrets",
  sfn: "ListStateMachines",
  ssm: "DescribeParameters",
  sts: "GetCallerIdentity",
};

const file = path.join(process.argv[2], "lib", "index.js");
const source = fs.readFileSync(file, "utf8");
const bundled = [...source.matchAll(/var (require_\w+) = __commonJS\w*\(\{\s*"[^"]*@aws-sdk\/client-([a-z0-9-]+)\/dist-cjs\/index\.js"/g)];
const clients = bundled.map(([, load, name]) => `${JSON.stringify(name)}: ${load}`);
const bundle = new Module(file);
bundle.filename = file;
bundle.paths = Module._nodeModulePaths(path.dirname(file));
bundle._compile(`${source}\n;module.exports.__clients = {${clients.join(", ")}};`, file);

async function called(name, operation) {
  const sdk = bundle.exports.__clients[name]();
  const client = sdk[Object.keys(sdk).find((exported) => /^[A-Z]\w*Client$/.test(exported))];
  try {
    await new client({}).send(new sdk[`${operation}Command`]({}));
    return "answered";
  } catch (error) {
    const status = error.$metadata && error.$metadata.httpStatusCode; // there is none where there was no answer
    return `${status ? "refused" : "failed"}: ${error.name}: ${error.message}`;
  }
}

(async () => {
  const outcomes = {};
  for (const [name, operation] of Object.entries(CALLS)) outcomes[name] = await called(name, operation);
  console.log(JSON.stringify(outcomes));
})();
