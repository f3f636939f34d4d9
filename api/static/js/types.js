/**
 * Shapes of the service's answers that the page reads, for editors and type checkers; nothing runs here.
 * They follow api/schemas/*.py, which is the source.
 *
 * @typedef {[number, number]} Run  first number, how many follow
 * @typedef {{total: number, runs: Run[], omitted: number}} Runs
 * @typedef {{asked: number|null, seq: number, transaction: number, time_us: number|null,
 *   settled: boolean}} At
 * @typedef {{request: string|null, epoch: number}} Origin
 *
 * @typedef {object} Journal
 * @property {number} id
 * @property {string} name
 * @property {boolean} hidden
 * @property {string} token_policy
 * @property {number|null} page_size
 * @property {number|null} first_seq
 * @property {number|null} last_seq
 * @property {number} transactions
 * @property {boolean} live
 * @property {boolean} degraded
 * @property {number} dropped_events
 * @property {number|null} queued_events
 * @property {{state: string, seq: number, problem: string|null}} following
 *
 * @typedef {object} Transaction
 * @property {number} number
 * @property {string} op
 * @property {string|null} request
 * @property {string} status
 * @property {string} reason
 * @property {number} time_us
 * @property {number} first_seq
 * @property {number} events
 *
 * @typedef {object} Brief  a node as the tree tells it
 * @property {number} id
 * @property {number|null} parent
 * @property {string} namespace
 * @property {number} depth
 * @property {number} start
 * @property {number} end
 * @property {number} row
 * @property {number} rows
 * @property {number} full_lock
 * @property {number} swa_lock
 * @property {boolean} tombstone
 * @property {boolean} mixed
 * @property {boolean} evictable_full
 * @property {boolean} evictable_swa
 * @property {number} children
 * @property {number} nodes_below
 * @property {number} rows_hidden
 *
 * @typedef {object} Tree
 * @property {At} at
 * @property {number} first_row
 * @property {number} rows
 * @property {number} rows_total
 * @property {number} nodes_total
 * @property {number} tokens_total
 * @property {number} end_max
 * @property {boolean} truncated
 * @property {string[]} namespaces
 * @property {number} namespaces_total
 * @property {string|null} sentence  why nothing is there, where that is to be told
 * @property {Brief[]} nodes
 *
 * @typedef {{at: At, absent: true, sentence: string}} Absent  what is told where `absent=tell` was asked for
 *
 * @typedef {object} EventOut
 * @property {number} seq
 * @property {boolean} undone
 * @property {number} transaction
 * @property {string} op
 * @property {number} time_us
 * @property {number|null} node
 * @property {string|null} request
 * @property {string} sentence
 * @property {{kind: string}} data
 *
 * @typedef {{first_seq: number, last_seq: number, rollbacks: number, anomalies: number,
 *   recoveries_under_lock: number, resets: number, gaps: number}} Mark
 * @typedef {{first_seq: number, last_seq: number, bucket_seqs: number, marks: Mark[]}} Marks
 *
 * @typedef {object} Level
 * @property {"full"|"swa"} pool
 * @property {number} page_size
 * @property {number} pages
 * @property {number} total
 * @property {number} free
 * @property {number} evictable
 * @property {number} protected
 * @property {number} held
 * @property {number} tombstoned
 * @typedef {{at: At, pools: Level[], nodes: number, tombstones: number, mixed_nodes: number,
 *   requests: number, leases: number}} Pools
 *
 * @typedef {{page: number, count: number, place: string, node: number|null, request: string|null,
 *   locked: boolean, tombstone: boolean}} OwnerRun
 * @typedef {{pages_total: number, first_page: number, pages: number, runs: OwnerRun[]}} PoolMap
 *
 * @typedef {{type: "node", id: number} | {type: "slot", pool: "full"|"swa", slot: number}
 *   | {type: "request", id: string}} Pick  what the side panel tells about
 */

export {};
