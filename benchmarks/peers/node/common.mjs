// What the peers' Node programs share; the same three roles, orders and records as in ../common.py.
import fs from 'node:fs'
import path from 'node:path'
import readline from 'node:readline'

export const role = process.argv[2]
export const connectionString = process.env.BENCH_DSN
export const settings = JSON.parse(process.env.BENCH_SETTINGS || '{}')

const WARM_UP = 20
const FULL = 256 // numbers in the buffer at which it is written
const FLUSH = 2 // milliseconds after which it is written anyway

export function payload (n) {
  return { n, text: 'x'.repeat(180) }
}

// Seconds of the monotonic clock, which is one for all processes of the machine.
export function now () {
  return Number(process.hrtime.bigint()) / 1e9
}

// Writes who was handled, and when. Node cannot map a file, so small batches are appended.
export function recorder () {
  const fd = fs.openSync(path.join(process.env.BENCH_RECORDS, String(process.pid)), 'a')
  let buffer = []
  const flush = () => {
    if (buffer.length === 0) return
    fs.writeSync(fd, Buffer.from(Float64Array.from(buffer).buffer))
    buffer = []
  }
  setInterval(flush, FLUSH)
  return n => {
    buffer.push(n, now())
    if (buffer.length >= FULL) flush()
  }
}

// A process ends when its standard input does.
export function endWithParent (stop) {
  let stopping = false
  const once = () => {
    if (stopping) return
    stopping = true
    setTimeout(() => process.exit(1), 10_000).unref()
    stop().then(() => process.exit(0), () => process.exit(1))
  }
  process.on('SIGTERM', once)
  process.stdin.on('end', once).resume()
}

const sleep = seconds => new Promise(resolve => setTimeout(resolve, seconds * 1000))

const orders = {
  async one (producer, jobs) {
    for (const n of jobs.slice(0, WARM_UP)) await producer.one(n)
    const timed = jobs.slice(WARM_UP)
    const started = now()
    for (const n of timed) await producer.one(n)
    return { seconds: now() - started, timed: timed.length }
  },
  async many (producer, jobs, { chunk }) {
    const started = now()
    for (let at = 0; at < jobs.length; at += chunk) await producer.many(jobs.slice(at, at + chunk))
    return { seconds: now() - started }
  },
  async paced (producer, jobs, { rate }) {
    const calls = []
    const begin = now()
    for (const [at, n] of jobs.entries()) {
      const wait = begin + at / rate - now()
      if (wait > 0) await sleep(wait)
      const called = now()
      await producer.one(n)
      calls.push([called, now()])
    }
    return { calls }
  }
}

// Takes orders from standard input, one JSON object a line, and answers each with one line.
export async function produce (producer) {
  const answer = what => fs.writeSync(1, JSON.stringify(what) + '\n')
  answer({})
  for await (const line of readline.createInterface({ input: process.stdin })) {
    const order = JSON.parse(line)
    const jobs = Array.from({ length: order.count }, (_, at) => order.first + at)
    answer(await orders[order.do](producer, jobs, order))
  }
}
