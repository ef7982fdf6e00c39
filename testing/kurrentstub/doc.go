// Package kurrentstub is a KurrentDB cluster in memory: a gRPC server for each of
// its nodes, on the protobuf packages of the real client, which talks to it as to a
// real one.
//
//	c, err := kurrentstub.Start(kurrentstub.Options{Nodes: 3})
//	defer c.Stop()
//	connect(c.ConnectionString())
//
// What it does is what a real cluster does with the calls that an engine makes:
// streams with revisions that are checked, appends that are idempotent by event id,
// a limit on their size, reads and subscriptions, stream metadata with $maxAge,
// $maxCount and $tb, tombstones, gossip, redirects to the leader, basic credentials.
// What no engine calls (batch appends, $all, links, persistent subscriptions,
// projections) answers Unimplemented. All nodes share one store: a node never lags
// unless Faults says so.
//
// And it can misbehave on purpose: see Faults.
package kurrentstub
