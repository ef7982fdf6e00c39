package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"fleetledger/commands"
	"fleetledger/commands/audit"
	"fleetledger/events/pebblelog"
	"fleetledger/events/seal"
	"fleetledger/relay/witness"
)

// witnessFlags name the witnesses of a server's logs.
type witnessFlags struct {
	texts  []string
	quorum int
	every  time.Duration

	list []witness.Witness
}

func (f *witnessFlags) add(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringArrayVar(&f.texts, "witness", nil, "a witness that is to cosign the log: its key and its address, NAME+HASH+KEY@URL (repeat)")
	flags.IntVar(&f.quorum, "witness-quorum", 0, "how many witnesses must cosign a checkpoint for it to be recorded (default more than half of them)")
	flags.DurationVar(&f.every, "witness-every", time.Minute, "how long after a cosigned checkpoint the next one is asked for, if the log grew")
}

// parse reads and checks the flags.
func (f *witnessFlags) parse(readOnly bool) error {
	var err error
	if f.list, err = parseWitnesses(f.texts); err != nil {
		return err
	}
	switch n := len(f.list); {
	case n == 0 && f.quorum != 0:
		return misused("--witness-quorum %d: no --witness is named", f.quorum)
	case f.quorum < 0 || f.quorum > n:
		return misused("--witness-quorum %d: it is from 1 to the number of witnesses, %d", f.quorum, n)
	case f.every < time.Second:
		return misused("--witness-every %v: it is a second at least", f.every)
	case n > 0 && readOnly:
		return misused("--read-only signs nothing that a witness could cosign: leave --witness out")
	case f.quorum == 0:
		f.quorum = n/2 + 1
	}
	return nil
}

// parseWitnesses reads what --witness was given of witnesses that are asked.
func parseWitnesses(texts []string) ([]witness.Witness, error) {
	var list []witness.Witness
	for _, text := range texts {
		w, err := witness.Parse(text)
		if err != nil {
			return nil, misused("--witness: %v", err)
		}
		if slices.ContainsFunc(list, func(o witness.Witness) bool { return o.Key.Name() == w.Key.Name() }) {
			return nil, misused("--witness: %s is named twice, and would count twice", w.Key.Name())
		}
		list = append(list, w)
	}
	return list, nil
}

// witnessPatience is how long a start waits for the witnesses.
const witnessPatience = 5 * time.Second

// askWitnesses makes what asks the witnesses of each fleet, and asks them before
// anything is recorded. Whoever calls it closes them.
func (a *app) askWitnesses(ctx context.Context, f witnessFlags, fleets map[string]*commands.Ledger, seals map[string]*seal.Sealer, logger *slog.Logger) map[string]*witness.Collector {
	out := map[string]*witness.Collector{}
	if len(f.list) == 0 {
		return out
	}
	ctx, cancel := context.WithTimeout(ctx, witnessPatience)
	defer cancel()
	var asking sync.WaitGroup
	for name, l := range fleets {
		c := witness.New(l, seals[name], witness.Config{Witnesses: f.list, Quorum: f.quorum, Every: f.every, Logger: logger.With("fleet", name)})
		out[name] = c
		asking.Go(func() { c.Ask(ctx) })
	}
	asking.Wait()
	for name, l := range fleets {
		if e, ok := errors.AsType[*commands.ContradictedError](l.Degraded()); ok {
			p := printer{a.err}
			p.f("fleet %s is served for reading only: %v\n", name, e)
			p.f("  stop this server, and start it on the newest copy of %s; if that is lost for good, found another fleet, or start without this --witness:\n", a.data)
			p.f("  what it has seen and is not here is then given up, and whoever kept a checkpoint of it will find that\n")
		}
	}
	return out
}

// heldToWitnesses asks witnesses about the fleets of a copy in dir: each must know them
// as they are there, or as less.
func (a *app) heldToWitnesses(ctx context.Context, dir string, m manifest, list []witness.Witness) error {
	for _, f := range m.Fleets {
		if len(list) == 0 {
			return nil
		}
		keys, err := readKeys(keyFile(dir, f.Fleet))
		if err == nil && len(keys) == 0 {
			err = errors.New("the backup has no key by which a witness would know its log")
		}
		if err != nil {
			return err
		}
		log, err := pebblelog.OpenReadOnly(fleetDir(dir, f.Fleet), pebblelog.Options{Fleet: f.Fleet, Logger: a.newLogger(slog.LevelWarn), Now: a.now})
		if err != nil {
			return err
		}
		s, err := seal.NewSealer(log, log, seal.Files{Keys: keys, Keep: func([]byte) error { return nil }})
		for i := 0; err == nil && i < len(list); i++ {
			if err = witness.Check(ctx, list[i], s); err != nil {
				err = explainWitness(err, list[i], f.Fleet)
			}
		}
		if err = errors.Join(err, log.Close()); err != nil {
			return err
		}
	}
	return nil
}

func explainWitness(err error, w witness.Witness, fleet string) error {
	if _, ok := errors.AsType[*commands.ContradictedError](err); ok {
		return tryNext(fmt.Errorf("fleet %s is not restored: %w; nothing was changed", fleet, err), "restore the newest backup there is")
	}
	return tryNext(fmt.Errorf("whether witness %s has seen more of fleet %s is not known: %w; nothing was changed", w.Key.Name(), fleet, err), "the same again when it answers, or without this --witness")
}

// witnessKeys reads what --witness was given of a verifier.
func witnessKeys(texts []string) ([]seal.WitnessKey, error) {
	var keys []seal.WitnessKey
	for _, text := range texts {
		k, err := seal.ParseWitnessKey(text)
		if err != nil {
			return nil, misused("--witness: %v", err)
		}
		keys = append(keys, k)
	}
	return keys, nil
}

// tellWitnessed says how far a log was witnessed.
func tellWitnessed(p printer, w audit.Witnessed) {
	for _, reach := range w.Witnesses {
		if reach.Size == 0 {
			p.f("  witness %s has cosigned nothing of it\n", reach.Witness)
		} else {
			p.f("  witness %s cosigned %s at %s\n", reach.Witness, count(int(reach.Size), "event"), reach.At.Format(time.RFC3339))
		}
	}
	if len(w.Witnesses) == 0 && w.Recorded > 0 {
		p.f("  %s recorded, the newest over %s: no --witness was given, and by whom is not established\n",
			count(w.Recorded, "cosigned checkpoint"), count(int(w.Size), "event"))
	}
}
