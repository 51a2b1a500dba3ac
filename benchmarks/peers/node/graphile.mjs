// graphile-worker; the tuned settings are those of its page on performance.
import { createRequire } from 'node:module'
import * as bench from './common.mjs'

const { Logger, makeWorkerUtils, run, runMigrations } = createRequire(process.env.BENCH_NODE + '/')('graphile-worker')
const { connectionString } = bench
const logger = new Logger(() => (level, message) => { if (level === 'error') console.error(message) })

if (bench.role === 'setup') {
  await runMigrations({ connectionString, logger })
} else if (bench.role === 'worker') {
  const record = bench.recorder()
  const runner = await run({
    preset: { worker: { connectionString, logger, ...bench.settings } },
    noHandleSignals: true,
    taskList: { nothing: async ({ n }) => { record(n) } }
  })
  bench.endWithParent(() => runner.stop())
} else {
  const utils = await makeWorkerUtils({ connectionString, logger })
  await bench.produce({
    one: n => utils.addJob('nothing', bench.payload(n)),
    many: jobs => utils.addJobs(jobs.map(n => ({ identifier: 'nothing', payload: bench.payload(n) })))
  })
  await utils.release()
}
