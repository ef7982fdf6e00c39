package relay

import (
	"net/http"
	"reflect"
)

// routes lists every path, in the order of the contract. What is not here yet is
// answered 404.
func (s *Relay) routes() {
	write(s, operation{method: "POST", path: "/v1/actors", id: "registerActor", tag: "actors", status: http.StatusCreated, waits: true,
		summary: "Register an actor",
		about:   "Action actor.register; actor.derive under the caller or its descendant. A machine with a scope also gets the rule task.submit.<id> for it."}, (*call).registerActor)
	read(s, operation{method: "GET", path: "/v1/actors", id: "listActors", tag: "actors", query: listParams,
		summary: "List the actors, in the order of registration"}, (*call).listActors)
	read(s, operation{method: "GET", path: "/v1/actors/{id}", id: "getActor", tag: "actors", query: readParams,
		summary: "Read an actor, with its tokens"}, (*call).getActor)
	write(s, operation{method: "PATCH", path: "/v1/actors/{id}", id: "changeActor", tag: "actors", waits: true,
		summary: "Change an actor's level, scopes or suspension",
		about:   "Actions actor.change and actor.scope."}, (*call).changeActor)
	write(s, operation{method: "POST", path: "/v1/actors/{id}/tokens", id: "issueToken", tag: "actors", status: http.StatusCreated, waits: true, bodyless: true,
		summary: "Give an actor another token", about: "Action actor.token; one's own need none."}, (*call).issueToken)
	write(s, operation{method: "DELETE", path: "/v1/actors/{id}/tokens/{token_id}", id: "revokeToken", tag: "actors", waits: true, bodyless: true,
		summary: "End a token", about: "Action actor.token; one's own need none."}, (*call).revokeToken)

	write(s, operation{method: "POST", path: "/v1/pairings", id: "pairMachine", tag: "actors", status: http.StatusCreated, waits: true,
		summary: "Make a pairing code for a machine",
		about:   "Action actor.register; actor.derive under the caller or its descendant; a machine needs none for another device of its own. Registers the machine if it is not yet; for one that is, name its id alone."}, (*call).pairMachine)
	s.handle(&operation{method: "POST", path: "/v1/pairings/redeem", id: "redeemPairing", tag: "actors", status: http.StatusCreated, open: true,
		in: reflect.TypeFor[redeemBody](), out: reflect.TypeFor[redeemReply](),
		summary: "Register the key of a device, once per code",
		about:   "401 PAIRING_INVALID for a code that never was, was used, or has expired. From then on the device signs each request: " + signingGuide}, (*call).redeemPairing)

	write(s, operation{method: "POST", path: "/v1/rules", id: "writeRule", tag: "rules", status: http.StatusCreated, waits: true,
		summary: "Write a rule, at the end of the list", about: "Action rule.write. 422 RULE_MALFORMED names every problem."}, (*call).writeRule)
	read(s, operation{method: "GET", path: "/v1/rules", id: "listRules", tag: "rules", query: listParams,
		summary: "List the rules in force, in the order of evaluation"}, (*call).listRules)
	write(s, operation{method: "DELETE", path: "/v1/rules/{id}", id: "retireRule", tag: "rules", waits: true, bodyless: true,
		summary: "Retire a rule", about: "Action rule.retire. The rule stays in the log."}, (*call).retireRule)

	write(s, operation{method: "POST", path: "/v1/gates", id: "askGate", tag: "gates",
		summary: "May I?", about: "Answered 200 whatever the verdict, and recorded. 422 SECRET_IN_COMMAND says where the command or the action holds a secret; nothing is recorded."}, (*call).askGate)
	s.handle(&operation{method: "POST", path: "/v1/gates/simulate", id: "simulate", tag: "gates", in: reflect.TypeFor[simulateBody](), out: reflect.TypeFor[simulateReply](), text: "text/event-stream",
		summary: "What would be decided", about: "Records nothing. With history, every recorded decision is decided again under the proposed rules, and those that would differ are listed. Accept: text/event-stream gives events \"progress\", then one \"result\"."}, (*call).simulate)
	s.absent("/v1/gates/simulate") // for GET: else /v1/gates/{id} would stand for it
	read(s, operation{method: "GET", path: "/v1/gates/{id}", id: "getGate", tag: "gates", query: readParams,
		summary: "What became of a gate"}, (*call).getGate)
	write(s, operation{method: "POST", path: "/v1/gates/{id}/spend", id: "spendGate", tag: "gates", bodyless: true,
		summary: "Use a granted \"may I?\", once"}, (*call).spendGate)

	read(s, operation{method: "GET", path: "/v1/approvals", id: "listApprovals", tag: "approvals",
		query:   with(listParams, param{name: "status", about: "Those of this status; all if absent.", values: []string{"pending", "granted", "refused", "expired", "withdrawn"}}),
		summary: "The queue of approvals, oldest first", about: "Those pending are answered from what is in force; others, and those of the past, from a view: 503 VIEW_BEHIND while it is behind. A page looks at 10,000 approvals at most: with a status it may be short, or empty, and yet have a next_cursor."}, (*call).listApprovals)
	follow(s, operation{method: "GET", path: "/v1/approvals/stream", id: "followApprovals", tag: "approvals", out: reflect.TypeFor[approvalItem](),
		summary: "Follow the queue of approvals (SSE)",
		about:   "Without Last-Event-ID first what is pending, then each approval when it is asked for, as an event \"requested\", and when it ends: \"granted\", \"refused\", \"expired\" or \"withdrawn\". Ids are positions; one that the log does not reach, as a backup was restored since, is forgotten, and what is pending sent."}, (*call).followApprovals)
	read(s, operation{method: "GET", path: "/v1/approvals/{id}", id: "getApproval", tag: "approvals", query: readParams,
		summary: "Read an approval"}, (*call).getApproval)
	write(s, operation{method: "POST", path: "/v1/approvals/settle", id: "settleApprovals", tag: "approvals",
		summary: "Grant or refuse several approvals, each alone"}, (*call).settleApprovals)
	write(s, operation{method: "POST", path: "/v1/approvals/{id}/settle", id: "settleApproval", tag: "approvals",
		summary: "Grant or refuse an approval", about: "Who may is fixed: see may_settle of the approval."}, (*call).settleApproval)
	write(s, operation{method: "POST", path: "/v1/approvals/{id}/withdraw", id: "withdrawApproval", tag: "approvals", bodyless: true,
		summary: "Take a pending approval back"}, (*call).withdrawApproval)

	write(s, operation{method: "POST", path: "/v1/tasks", id: "submitTask", tag: "tasks", status: http.StatusCreated, waits: true,
		summary: "Submit a task", about: "Action task.submit.<machine>, for each target. 422 SECRET_IN_COMMAND says which words hold a secret; nothing is recorded. 202 with a task_id when an approval is pending: its grant opens the task."}, (*call).submitTask)
	read(s, operation{method: "GET", path: "/v1/tasks", id: "listTasks", tag: "tasks",
		query: with(listParams, param{name: "status", about: "Those of this status.", values: []string{"awaiting_approval", "open", "settled"}},
			param{name: "machine", about: "Those with this target."}),
		summary: "List tasks, newest first", about: "Envelopes are left out: read one task for them. Those that are open, or wait for an approval, are answered from what is in force; others, and those of the past, from a view: 503 VIEW_BEHIND while it is behind. A page looks at 10,000 tasks at most: with a status it may be short, or empty, and yet have a next_cursor."}, (*call).listTasks)
	read(s, operation{method: "GET", path: "/v1/tasks/{id}", id: "getTask", tag: "tasks", query: readParams,
		summary: "Read a task: state, legs, attempts, verdict"}, (*call).getTask)
	read(s, operation{method: "GET", path: "/v1/tasks/{id}/history", id: "taskHistory", tag: "tasks", query: readParams,
		summary: "The settlement history of a task"}, (*call).taskHistory)
	s.handle(&operation{method: "GET", path: "/v1/tasks/{id}/evidence", id: "getEvidence", tag: "tasks", media: []string{evidenceType}, query: []param{minPositionParam},
		summary: "Everything that a task's settlement rests on, in one file",
		about:   "JSON Lines: a head with the signed checkpoint, then an event a line, each with its header, payload and proof of inclusion; the task's, and the authority and settings before its end. It is verified without the relay. 422 EVIDENCE_TOO_LARGE for more than 20,000 events or 48 MiB."}, (*call).getEvidence)
	write(s, operation{method: "POST", path: "/v1/tasks/{id}/cancel", id: "cancelTask", tag: "tasks", waits: true, bodyless: true,
		summary: "Cancel a task, before any report", about: "Action task.cancel; the submitter needs none."}, (*call).cancelTask)

	follow(s, operation{method: "GET", path: "/v1/machines/{id}/offers", id: "followOffers", tag: "attempts", out: reflect.TypeFor[offerReply](),
		summary: "Follow a machine's offers (SSE)",
		about:   "Each is sent once until it is claimed or lapses: an event \"offer\" whose id is its position. Resumes by Last-Event-ID; one that the log does not reach, as a backup was restored since, is forgotten, and every offer sent. The machine alone reads them."}, (*call).followOffers)
	write(s, operation{method: "POST", path: "/v1/tasks/{id}/claim", id: "claimTask", tag: "attempts",
		summary: "Claim the caller's leg of a task"}, (*call).claimTask)
	write(s, operation{method: "POST", path: "/v1/tasks/{id}/attempts/{n}/heartbeat", id: "heartbeat", tag: "attempts", bodyless: true,
		summary: "Hold the lease of an attempt", about: "Records nothing."}, (*call).heartbeat)
	write(s, operation{method: "POST", path: "/v1/tasks/{id}/attempts/{n}/report", id: "reportAttempt", tag: "attempts",
		summary: "End an attempt with what its machine saw", about: "The same envelope again is answered with the same receipt."}, (*call).reportAttempt)

	write(s, operation{method: "POST", path: "/v1/memory", id: "recordMemory", tag: "memory", status: http.StatusCreated, waits: true,
		summary: "Remember a finished run", about: "Action memory.record. Secrets in its words, tails, tags and directory are masked."}, (*call).recordMemory)
	read(s, operation{method: "GET", path: "/v1/memory", id: "listMemory", tag: "memory", view: true,
		query: with(listParams, param{name: "machine", about: "Runs on this machine."},
			param{name: "argv", repeated: true, about: "Runs of exactly this command: one line as the answers show it, or once for each word."},
			param{name: "repo", about: "Runs in this repository."}, param{name: "cwd", about: "Runs in this directory: D:\\Docu2 and d:/docu2 are one."}, forgottenParam),
		summary: "List finished runs, newest first"}, (*call).listMemory)
	s.handle(&operation{method: "GET", path: "/v1/tried", id: "tried", tag: "memory", nowOnly: true, view: true, out: reflect.TypeFor[triedReply](),
		query: []param{{name: "q", about: "A command, a phrase or words; all runs if absent."}, {name: "machine", about: "Runs on this machine."},
			{name: "repo", about: "Runs in this repository."}, forgottenParam, limitParam, cursorParam,
			{name: "max_bytes", integer: true, least: minTriedBytes, most: maxTriedBytes, about: "Answers of at most so many bytes, of the first its command whatever it takes; 65,536 if absent."},
			minPositionParam, {name: "at", about: "Not supported: 400 AT_NOT_SUPPORTED."}},
		text:    markdownType,
		summary: "What did we already try?",
		about:   "Accept: text/markdown gives the answers as text for an agent to read, what machines and people wrote in fences that it cannot close."}, (*call).tried)
	write(s, operation{method: "POST", path: "/v1/sql", id: "sql", tag: "memory", nowOnly: true, view: true,
		query:   []param{minPositionParam, {name: "at", about: "Not supported: 400 AT_NOT_SUPPORTED."}},
		summary: "Ask in SQL",
		about:   "One statement that reads the fleet's view, a SQLite database: tasks, attempts, runs, conclusions, gates, approvals, rules, actors, sections, blocks and more. At most 10,000 rows, 4 MiB, 5 s. Refused, each with its code: SQL_INVALID, SQL_ONE_STATEMENT, SQL_NOT_READ_ONLY, SQL_FORBIDDEN, SQL_TOO_SLOW, SQL_TOO_BIG, SQL_BUSY."}, (*call).sql)
	read(s, operation{method: "GET", path: "/v1/view", id: "getView", tag: "memory", query: []param{minPositionParam},
		summary: "How the view stands that answers memory, conclusions, tried and SQL"}, (*call).getView)
	write(s, operation{method: "POST", path: "/v1/view/rebuild", id: "rebuildView", tag: "memory", bodyless: true,
		summary: "Make the view again, from the log", about: "The old one answers until the new one takes its place. Records nothing."}, (*call).rebuildView)
	write(s, operation{method: "POST", path: "/v1/conclusions", id: "conclude", tag: "memory", status: http.StatusCreated, waits: true,
		summary: "Say what a result meant", about: "Action conclusion.record; not for machines and what is derived from them. 422 SECRET_IN_TEXT says where it holds a secret; nothing is recorded."}, (*call).conclude)
	read(s, operation{method: "GET", path: "/v1/conclusions", id: "listConclusions", tag: "memory", view: true,
		query:   with(listParams, param{name: "about", about: "Those about this task or record."}),
		summary: "List conclusions, newest first"}, (*call).listConclusions)

	write(s, operation{method: "POST", path: "/v1/consolidations", id: "consolidate", tag: "memory", status: http.StatusCreated, waits: true,
		summary: "Say what records amount to; have views leave records out, or show them again",
		about:   "Action memory.consolidate; what everybody is shown takes collective.revise too. The log holds what it holds: nothing is deleted by it. 422 SECRET_IN_TEXT says where the text holds a secret; nothing is recorded."}, (*call).consolidate)
	read(s, operation{method: "GET", path: "/v1/consolidations", id: "listConsolidations", tag: "memory", view: true,
		query:   with(listParams, param{name: "machine", about: "Those that rest on runs of this machine, or forget some."}, param{name: "record", about: "Those that rest on this record."}),
		summary: "List consolidations, newest first"}, (*call).listConsolidations)
	read(s, operation{method: "GET", path: "/v1/consolidations/{id}", id: "getConsolidation", tag: "memory", query: readParams,
		summary: "Read a consolidation"}, (*call).getConsolidation)

	s.handle(&operation{method: "GET", path: "/v1/collective", id: "getCollective", tag: "memory", query: readParams, text: markdownType, out: reflect.TypeFor[collectiveReply](),
		summary: "Read the collective memory", about: "Markdown, which fleetledger collective import reads back without loss; JSON if Accept asks for application/json. 404 MEMORY_NO_COLLECTIVE if no section was ever written, which is not an empty document."}, (*call).getCollective)
	read(s, operation{method: "GET", path: "/v1/collective/sections/{slug}", id: "getSection", tag: "memory", query: readParams,
		summary: "Read a section, with its history", about: "A retired one too."}, (*call).getSection)
	write(s, operation{method: "PUT", path: "/v1/collective/sections/{slug}", id: "reviseSection", tag: "memory", waits: true, conditional: true,
		summary: "Write a section, all of it", about: "Action collective.revise. 422 SECRET_IN_TEXT says where it holds a secret; nothing is recorded. 409 SECTION_CHANGED tells what it says by now, if that is not what was edited."}, (*call).reviseSection)
	write(s, operation{method: "DELETE", path: "/v1/collective/sections/{slug}", id: "retireSection", tag: "memory", waits: true, bodyless: true, conditional: true,
		summary: "Take a section out of the document", about: "Action collective.revise. It stays in the log, and can be written again."}, (*call).retireSection)

	write(s, operation{method: "POST", path: "/v1/blocks", id: "publishBlock", tag: "blocks", status: http.StatusCreated, already: true, waits: true,
		summary: "Publish a claim of up to seven fields, with what it stems from",
		about:   "Action memory.publish. Texts are kept in Unicode's Normalization Form C. The hash is SHA-256 over these parts, each preceded by its length in bytes as eight bytes, big endian: \"fleetledger-block/1\"; for each field given, in the order focus, issue, intent, motivation, commitment, perspective, mood, its name and its text; \"parents\"; each parent's hash as text, in ascending order. So {\"focus\": \"caf\u00e9\", \"mood\": \"calm\"} without parents has the hash cbab5f78daaaffd4d3e9c12f1af41a4197f73831e77111079c10e7c41f68fdac. What was published before, by anybody, is answered 200 and not recorded again. 422 PARENT_NOT_HERE names the parents that are missing."}, (*call).publishBlock)
	write(s, operation{method: "POST", path: "/v1/blocks/import", id: "importBlocks", tag: "blocks", waits: true,
		summary: "Publish the blocks of an exported file, all or none",
		about:   "Action memory.publish. Every hash and lineage is checked: 422 BLOCK_TAMPERED. Here the importer is the publisher, and its level is tested."}, (*call).importBlocks)
	s.absent("/v1/blocks/import")
	read(s, operation{method: "GET", path: "/v1/blocks", id: "listBlocks", tag: "blocks", view: true,
		query: with(listParams, param{name: "published_by", about: "Those that this actor published."}, param{name: "accepted_by", about: "Those that this actor took something of."},
			param{name: "parent", about: "Those that stem from this block directly."}),
		summary: "List blocks, newest first", about: "Erased ones are not listed."}, (*call).listBlocks)
	read(s, operation{method: "GET", path: "/v1/blocks/{hash}", id: "getBlock", tag: "blocks", query: readParams,
		summary: "Read a block, and what its receivers took of it"}, (*call).getBlock)
	read(s, operation{method: "GET", path: "/v1/blocks/{hash}/export", id: "exportBlock", tag: "blocks", query: readParams,
		summary: "A block with its whole lineage, for another fleet", about: "What POST /v1/blocks/import takes."}, (*call).exportBlock)
	write(s, operation{method: "POST", path: "/v1/blocks/{hash}/accept", id: "acceptBlock", tag: "blocks", bodyless: true,
		summary: "Take of a block what the rules let in, field by field",
		about:   "Each field is decided by the rules for memory.accept.<field>, with the level of the block's publisher; the receiver may narrow that, never widen it. A refused field is absent from what is recorded."}, (*call).acceptBlock)

	write(s, operation{method: "POST", path: "/v1/events", id: "appendEvents", tag: "events", status: http.StatusCreated, waits: true,
		media:   []string{cloudEventType, cloudEventBatchType, "application/json"},
		summary: "Append an agent's own event, or a batch of them, all or nothing",
		about:   "CloudEvents 1.0. The action is the event's type. Into streams named ext-... only. 422 SECRET_IN_EVENT says where an event holds a secret; nothing is recorded."}, (*call).appendEvents)
	s.handle(&operation{method: "GET", path: "/v1/events", id: "listEvents", tag: "events", out: reflect.TypeFor[list[eventReply]](),
		query: []param{{name: "after", integer: true, about: "Events after this position."}, {name: "stream", about: "Events of this stream."},
			{name: "type", about: "Events of this kind."}, limitParam, cursorParam, minPositionParam},
		summary: "Read the log", about: "A page looks at 10,000 events at most: with a filter it may be short, or empty, and yet have a next_cursor. Accept: application/cloudevents-batch+json gives CloudEvents, with the next page in the header Link."}, (*call).listEvents)
	follow(s, operation{method: "GET", path: "/v1/events/stream", id: "followEvents", tag: "events", out: reflect.TypeFor[eventReply](),
		query: []param{{name: "after", integer: true, about: "Events after this position; the header Last-Event-ID goes before it."},
			{name: "stream", about: "Events of this stream."}, {name: "type", about: "Events of this kind."}},
		summary: "Follow the log (SSE)", about: "From after, then live: events \"event\" whose ids are positions. Resumes by Last-Event-ID."}, (*call).followEvents)
	s.handle(&operation{method: "GET", path: "/v1/events/{id}", id: "getEvent", tag: "events", query: []param{minPositionParam}, out: reflect.TypeFor[eventReply](),
		summary: "Read an event", about: "Accept: application/cloudevents+json gives a CloudEvent."}, (*call).getEvent)
	write(s, operation{method: "POST", path: "/v1/events/{id}/erase", id: "eraseEvent", tag: "events", waits: true,
		summary: "Erase an event's payload, for good",
		about:   "Action payload.erase. The event, its header and every proof stay; the payload goes from every view, answer and file. 422 NOT_ERASABLE for what decisions rest on, such as authority, gates and approvals, and for a task that is not settled; 409 ALREADY_ERASED."}, (*call).eraseEvent)

	s.subscriptionRoutes()

	s.handle(&operation{method: "GET", path: "/log/checkpoint", id: "getCheckpoint", tag: "proofs", media: []string{"text/plain"},
		summary: "The signed head of the log", about: "C2SP tlog-checkpoint. It covers everything that was acknowledged."}, (*call).getCheckpoint)
	s.handle(&operation{method: "GET", path: "/log/witnessed", id: "getWitnessed", tag: "proofs", media: []string{"text/plain"},
		summary: "The newest checkpoint that witnesses have cosigned",
		about:   "C2SP tlog-checkpoint, with the cosignatures of C2SP tlog-cosignature, as it is in the log. It lies behind /log/checkpoint, which the recording of it has outgrown. 404 NOT_WITNESSED."}, (*call).getWitnessed)
	s.handle(&operation{method: "GET", path: "/log/tile/*", rest: "tile", id: "getTile", tag: "proofs", media: []string{"application/octet-stream"},
		summary: "A tile of the log's Merkle tree, or a bundle of its leaves",
		about:   "C2SP tlog-tiles: {level}/{n} and entries/{n}, with .p/{width} for one that is not full. An entry is an event's header, the Merkle leaf."}, (*call).getTile)
	s.handle(&operation{method: "GET", path: "/v1/proofs/{position}", id: "getProof", tag: "proofs", media: []string{"text/plain"},
		query:   []param{{name: "size", integer: true, least: 1, about: "Prove it in the first so many events; in those of a served checkpoint if absent."}},
		summary: "Prove that an event is in the log", about: "C2SP tlog-proof, with the signed checkpoint in it. What is proved is the event's leaf_hash."}, (*call).getProof)

	write(s, operation{method: "POST", path: "/v1/audit", id: "startAudit", tag: "ledger", status: http.StatusCreated, already: true, bodyless: true,
		summary: "Audit the whole log", about: "Every decision is decided again, every projection folded anew. One runs at a time: 200 tells of the one that does. It is no event, and a restart forgets it."}, (*call).startAudit)
	read(s, operation{method: "GET", path: "/v1/audit/{id}", id: "getAudit", tag: "ledger", query: []param{minPositionParam},
		summary: "How far an audit is, and what it found"}, (*call).getAudit)
	s.handle(&operation{method: "GET", path: "/v1/backup", id: "getBackup", tag: "ledger", media: []string{tarType},
		summary: "A backup of the fleet, for root",
		about:   "A tar archive: a data directory with every event that was acknowledged when it was asked for, the keys that sign the log and root's token. Its last file, backup.json, lists the others with their SHA-256; without it the archive is cut off. One at a time: 409 BACKUP_RUNNING."}, (*call).getBackup)
	s.handle(&operation{method: "GET", path: "/v1/payloads", id: "getPayloads", tag: "proofs", media: []string{payloadsType},
		query:   []param{{name: "after", integer: true, about: "Of the events after this position."}, limitParam},
		summary: "The payloads that the log's leaves commit to, byte for byte",
		about:   "JSON Lines, one for each position: its payload as text and its salt in hexadecimal, or erased. A header's commitment is SHA-256 over the salt's bytes and the payload. A page may end before its limit; the next one begins after its last position."}, (*call).getPayloads)
	read(s, operation{method: "GET", path: "/v1/keys", id: "listKeys", tag: "proofs", query: []param{minPositionParam},
		summary: "The keys that sign the log, and those that did"}, (*call).listKeys)
	write(s, operation{method: "POST", path: "/v1/keys", id: "rotateKey", tag: "proofs", status: http.StatusCreated, waits: true,
		summary: "Add a key that signs the log beside the one there is",
		about:   "Action fleet.configure. From then on both sign every checkpoint, so that whoever has only the old one can follow to the new one. 409 KEY_OVERLAP if two keys are in force."}, (*call).rotateKey)
	write(s, operation{method: "POST", path: "/v1/keys/{key}/retire", id: "retireKey", tag: "proofs", waits: true,
		summary: "End the use of a key that signs the log",
		about:   "Action fleet.configure. The event holds the last checkpoint that the key signed; the key counts for no larger one. 409 KEY_LAST, KEY_RETIRED."}, (*call).retireKey)
	read(s, operation{method: "GET", path: "/v1/settings", id: "getSettings", tag: "ledger", query: readParams,
		summary: "The fleet's settings in force"}, (*call).getSettings)
	write(s, operation{method: "PATCH", path: "/v1/settings", id: "changeSettings", tag: "ledger", waits: true,
		summary: "Change settings", about: "Action fleet.configure. What is left out stays as it is."}, (*call).changeSettings)
	read(s, operation{method: "GET", path: "/v1/limits", id: "limits", tag: "ledger", query: []param{minPositionParam},
		summary: "Every limit"}, (*call).limits)

	read(s, operation{method: "GET", path: "/healthz", id: "health", tag: "relay", open: true, summary: "Does it answer?"}, (*call).health)
	read(s, operation{method: "GET", path: "/readyz", id: "ready", tag: "relay", open: true, summary: "Does it serve?"}, (*call).ready)
	s.handle(&operation{method: "GET", path: "/metrics", id: "getMetrics", tag: "relay", media: []string{"text/plain"},
		summary: "Metrics of the relay and of the caller's fleet", about: "In Prometheus' text format."}, (*call).getMetrics)
	s.handle(&operation{method: "GET", path: "/openapi.json", id: "openapi", tag: "relay", summary: "This document"}, (*call).openAPI)
	s.handle(&operation{method: "GET", path: "/docs", id: "docs", tag: "relay", summary: "This document for people", media: []string{"text/html"}}, (*call).docs)
}

// absent answers 404 at a path that another one would match.
func (s *Relay) absent(path string) { s.router.Get(path, s.pathNotFound) }
