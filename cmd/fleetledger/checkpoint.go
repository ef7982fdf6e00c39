package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"fleetledger/agent"
	"fleetledger/events"
	"fleetledger/events/seal"
)

func (a *app) checkpointCommand() *cobra.Command {
	var key, witnessed bool
	cmd := &cobra.Command{
		Use:   "checkpoint",
		Short: "Show the signed head of the log, or the key that verifies it",
		Long: strings.TrimSpace(`
Show the signed checkpoint of the log: its name, how many events it has, and their
Merkle root. Keep one somewhere else: with it and the key, anyone can tell later
that no event up to it was changed, dropped or moved.

With --witnessed, show the newest one that witnesses have cosigned instead.`),
		Example: `  fleetledger checkpoint > checkpoint.2026-11-30
  fleetledger checkpoint --key > ledger.key`,
		Args: cobra.NoArgs,
		RunE: a.does(func(cmd *cobra.Command, _ []string) error {
			c, err := a.client(cmd)
			if err != nil {
				return err
			}
			if key {
				verifier, others, err := a.verifierKey(cmd, c)
				if err != nil {
					return err
				}
				a.noteOtherSigner(cmd, c, verifier, others)
				if a.json {
					return a.printValue(struct {
						VerifierKey string `json:"verifier_key"`
					}{verifier})
				}
				printer{a.out}.f("%s\n", verifier)
				return nil
			}
			which := "checkpoint"
			if witnessed {
				which = "witnessed"
			}
			resp, err := c.Get(cmd.Context(), agent.Path("log", which), nil)
			if err != nil {
				return a.unanswered(err)
			}
			if a.json {
				claims, err := seal.ParseCheckpoint(resp.Body)
				if err != nil {
					return fmt.Errorf("the checkpoint cannot be read: %w", err)
				}
				return a.printValue(struct {
					checkpointJSON
					Signed string `json:"signed"`
				}{checkpointJSON{claims.Origin, claims.Size, claims.Root}, string(resp.Body)})
			}
			_, err = a.out.Write(resp.Body)
			return err
		}),
	}
	cmd.Flags().BoolVar(&key, "key", false, "show the verifier key instead")
	cmd.Flags().BoolVar(&witnessed, "witnessed", false, "show the newest checkpoint that witnesses have cosigned")
	cmd.MarkFlagsMutuallyExclusive("key", "witnessed")
	cmd.AddCommand(a.verifyCheckpointCommand())
	return cmd
}

type checkpointJSON struct {
	Origin string      `json:"origin"`
	Size   uint64      `json:"size"`
	Root   events.Hash `json:"root"`
}

// verifierKey is the newest key that the server signs with; others are those of the log
// that it does not.
func (a *app) verifierKey(cmd *cobra.Command, c *agent.Client) (key string, others []string, err error) {
	resp, err := c.Get(cmd.Context(), agent.Path("v1", "keys"), nil)
	if err != nil {
		return "", nil, a.unanswered(err)
	}
	var list struct {
		Items []struct {
			VerifierKey string `json:"verifier_key"`
			Signs       bool   `json:"signs"`
		} `json:"items"`
	}
	if err := resp.Decode(&list); err != nil {
		return "", nil, err
	}
	for _, k := range list.Items {
		if k.Signs {
			key = k.VerifierKey
		} else {
			others = append(others, k.VerifierKey)
		}
	}
	if key == "" {
		return "", nil, errors.New("the log names no key: its server does not sign it")
	}
	return key, others, nil
}

// noteOtherSigner says if not own, but one of the other keys signed the checkpoint that
// the server serves: of the relays of a cluster, the one on duty signs, with its key.
func (a *app) noteOtherSigner(cmd *cobra.Command, c *agent.Client, own string, others []string) {
	if len(others) == 0 {
		return
	}
	resp, err := c.Get(cmd.Context(), agent.Path("log", "checkpoint"), nil)
	if err != nil {
		return // the key was asked for, and is there
	}
	signed := func(key string) bool {
		_, err := seal.VerifyCheckpoint(resp.Body, key)
		return err == nil
	}
	if signed(own) {
		return
	}
	for _, key := range others {
		if signed(key) {
			printer{a.err}.f("this is the key of the relay that was asked; the newest checkpoint is signed by the relay on duty, with the key\n  %s\n", key)
			return
		}
	}
}

func (a *app) verifyCheckpointCommand() *cobra.Command {
	var key, old, oldKey string
	var witnessTexts []string
	cmd := &cobra.Command{
		Use:   "verify FILE --key KEY [--old FILE [--old-key KEY]] [--witness KEY]",
		Short: "Verify a checkpoint, who witnessed it, and that it continues an earlier one",
		Long: strings.TrimSpace(`
Verify that a checkpoint, in a file or with "-" on stdin, is signed by KEY, the text
that "checkpoint --key" showed.
With --old, verify an earlier one too, and that its events are the beginning of the
later log: that needs tiles from the server, which is not trusted. Where the log has
changed its key in between, --old-key is the one that signed the earlier checkpoint.

With --witness, give the keys of witnesses that you trust, and those of them that have
cosigned the checkpoint are told; it is refused if none has.`),
		Example: `  fleetledger checkpoint verify now.checkpoint --key "$(cat ledger.key)" --old then.checkpoint`,
		Args:    cobra.ExactArgs(1),
		RunE: a.does(func(cmd *cobra.Command, args []string) error {
			if key == "" {
				return misused("--key is missing: whose signature is to be there?")
			}
			if oldKey == "" {
				oldKey = key
			} else if old == "" {
				return misused("--old-key is the key of the earlier checkpoint: name that with --old")
			}
			if _, err := seal.VerifierOrigin(key); err != nil {
				return misused("--key: %v", err)
			}
			if _, err := seal.VerifierOrigin(oldKey); err != nil {
				return misused("--old-key: %v", err)
			}
			witnesses, err := witnessKeys(witnessTexts)
			if err != nil {
				return err
			}
			now, signed, err := a.readCheckpoint(args[0], key)
			if err != nil {
				return err
			}
			cosigned, err := seal.Cosignatures(signed, witnesses)
			if err == nil && len(witnesses) > 0 && len(cosigned) == 0 {
				err = errors.New("none of the witnesses whose keys were given has cosigned it")
			}
			if err != nil {
				return fmt.Errorf("%s: %w", args[0], err)
			}
			out := struct {
				checkpointJSON
				Extends  *uint64            `json:"extends,omitzero"`
				Cosigned []seal.Cosignature `json:"cosigned,omitzero"`
			}{Cosigned: cosigned, checkpointJSON: checkpointJSON{now.Origin, now.Size, now.Root}}
			if old != "" {
				earlier, _, err := a.readCheckpoint(old, oldKey)
				if err != nil {
					return err
				}
				if err := a.extends(cmd, earlier, now); err != nil {
					return fmt.Errorf("%s does not continue %s: %w", args[0], old, err)
				}
				out.Extends = &earlier.Size
			}
			if a.json {
				return a.printValue(out)
			}
			p := printer{a.out}
			p.f("ok: %s, %s, Merkle root %s\n", now.Origin, count(int(now.Size), "event"), now.Root)
			if out.Extends != nil {
				p.f("  it continues the %s of %s\n", count(int(*out.Extends), "event"), old)
			}
			for _, c := range cosigned {
				p.f("  witness %s cosigned it at %s\n", c.Witness, c.At.Format(time.RFC3339))
			}
			for _, k := range witnesses {
				if !slices.ContainsFunc(cosigned, func(c seal.Cosignature) bool { return c.Key == k.String() }) {
					p.f("  witness %s has not cosigned it\n", k.Name())
				}
			}
			if len(witnesses) == 0 {
				p.f("  no --witness was given: that it was witnessed is not established\n")
			}
			return nil
		}),
	}
	cmd.Flags().StringVar(&key, "key", "", "verifier key of the log")
	cmd.Flags().StringArrayVar(&witnessTexts, "witness", nil, "key of a witness, NAME+HASH+KEY; may be repeated")
	cmd.Flags().StringVar(&old, "old", "", "file with an earlier checkpoint")
	cmd.Flags().StringVar(&oldKey, "old-key", "", "verifier key of the log then, if it was another")
	return cmd
}

func (a *app) readCheckpoint(name, key string) (c seal.Checkpoint, signed []byte, err error) {
	if signed, err = a.readFile(name, 1<<20); err != nil {
		return c, nil, err
	}
	if c, err = seal.VerifyCheckpoint(signed, key); err != nil {
		return c, nil, fmt.Errorf("%s: %w", name, err)
	}
	return c, signed, nil
}

// extends checks with the server's tiles that now continues earlier.
func (a *app) extends(cmd *cobra.Command, earlier, now seal.Checkpoint) error {
	var c *agent.Client // most that contradict each other do so without a server
	return seal.Extends(earlier, now, func(path string) (_ []byte, err error) {
		if c == nil {
			if c, err = a.client(cmd); err != nil {
				return nil, err
			}
		}
		resp, err := c.Get(cmd.Context(), "/log/"+path, nil)
		if err != nil {
			return nil, a.unanswered(err)
		}
		return resp.Body, nil
	})
}
