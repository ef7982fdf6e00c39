// Package agent is the machine's side of the ledger: an HTTP client for a
// relay, and the loop that takes a machine's offers and runs them.
//
//	client, err := agent.NewClient("http://127.0.0.1:7070", token)
//	a, err := agent.New(client, agent.Config{Machine: "m1", Policy: policy, StateDir: dir})
//	err = a.Run(ctx)
//
// Client (client.go, problem.go, stream.go) turns the relay's problem documents
// back into errors, retries what is safe to retry, and follows event streams
// through restarts of the relay.
//
// Agent (agent.go, attempt.go) does one thing after the other: take an offer,
// claim it, run the command while it holds the lease, remember the run, report
// it. What a crash leaves behind: before the claim, an open offer; between the
// claim and the end of the command, a lease that lapses, since what ran without
// its agent has no trustworthy end, and a note of what was started (started.go), by
// which the next start ends it; after it, an envelope in the outbox (outbox.go),
// which the next start reports.
//
// What runs here without being asked for by a task (fleetledger run) is sent by
// Records (records.go). device.go holds the key of a paired machine.
package agent
