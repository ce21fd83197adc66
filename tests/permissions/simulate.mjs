// Evaluates requests against policies by @cloud-copilot/iam-simulate: one JSON object a line, and one line for each.
import { createInterface } from 'node:readline'
import { runSimulation } from '@cloud-copilot/iam-simulate'

for await (const line of createInterface({ input: process.stdin })) {
  const found = await runSimulation(JSON.parse(line), {})
  const answer =
    found.resultType === 'error'
      ? { error: found.errors }
      : { decision: found.overallResult, ignored: found.result.ignoredContextKeys }
  console.log(JSON.stringify(answer))
}
