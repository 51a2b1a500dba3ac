// pg-boss. Its handler gets an array, which counts as one call for each job in it.
import { createRequire } from 'node:module'
import { pathToFileURL } from 'node:url'
import * as bench from './common.mjs'

const found = createRequire(process.env.BENCH_NODE + '/').resolve('pg-boss')
const { PgBoss } = await import(pathToFileURL(found))
const { notify = false, work = {} } = bench.settings
const working = bench.role === 'worker'
const boss = new PgBoss({
  connectionString: bench.connectionString,
  useListenNotify: notify && working,
  supervise: working,
  schedule: working
})
boss.on('error', error => console.error(error))
await boss.start()

if (bench.role === 'setup') {
  await boss.createQueue('bench', { notify })
  await boss.stop({ graceful: false })
  process.exit(0)
} else if (working) {
  const record = bench.recorder()
  await boss.work('bench', work, async jobs => { for (const job of jobs) record(job.data.n) })
  bench.endWithParent(() => boss.stop({ graceful: true, timeout: 3000 }))
} else {
  await bench.produce({
    one: n => boss.send('bench', bench.payload(n)),
    many: jobs => boss.insert('bench', jobs.map(n => ({ data: bench.payload(n) })))
  })
  await boss.stop({ graceful: false })
  process.exit(0)
}
