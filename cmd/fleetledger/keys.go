package main

import (
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"fleetledger/agent"
)

func (a *app) keysCommand() *cobra.Command {
	list, rotate, retire := a.keysListCommand(), a.keysRotateCommand(), a.keysRetireCommand()
	return a.group("keys", "The keys that sign the log's checkpoints",
		list.Example+"\n"+rotate.Example+"\n"+retire.Example, list, rotate, retire)
}

func (a *app) keysListCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "list",
		Short: "List the keys that sign the log, and those that did",
		Long: strings.TrimSpace(`
List every key that the log names. A retired key counts for checkpoints up to the size
shown, and for no larger one.`),
		Example: `  fleetledger keys list`,
		Args:    cobra.NoArgs,
		RunE: a.does(func(cmd *cobra.Command, _ []string) error {
			return a.get(cmd, "/v1/keys", nil, func(p printer, r *agent.Response) error {
				var list struct {
					Items []struct {
						Key         string `json:"key"`
						VerifierKey string `json:"verifier_key"`
						Added       uint64 `json:"added"`
						Retired     uint64 `json:"retired"`
						Until       uint64 `json:"until_size"`
						Signs       bool   `json:"signs"`
					} `json:"items"`
				}
				if err := r.Decode(&list); err != nil {
					return err
				}
				rows := [][]string{{"KEY", "ADDED AT", "COUNTS", "VERIFIER KEY"}}
				for _, k := range list.Items {
					counts := "now"
					switch {
					case k.Retired > 0:
						counts = "up to size " + strconv.FormatUint(k.Until, 10)
					case !k.Signs:
						counts = "now, but this relay does not have it"
					}
					rows = append(rows, []string{k.Key, strconv.FormatUint(k.Added, 10), counts, k.VerifierKey})
				}
				p.table(rows)
				return nil
			})
		}),
	}
}

func (a *app) keysRotateCommand() *cobra.Command {
	var reason string
	cmd := spends(&cobra.Command{
		Use:   "rotate [--reason TEXT]",
		Short: "Add a key that signs the log beside the one there is",
		Long: strings.TrimSpace(`
Make a key and record it. From then on both keys sign every checkpoint, so that whoever
has only the old one can follow to the new one. Hand the new verifier key to those who
verify checkpoints, then: keys retire OLD. This needs level 90, unless rules say
otherwise (action fleet.configure).`),
		Example: `  fleetledger keys rotate --reason 'yearly'`,
		Args:    cobra.NoArgs,
		RunE: a.does(func(cmd *cobra.Command, _ []string) error {
			return a.post(cmd, "/v1/keys", reasonBody{reason}, func(p printer, r *agent.Response) error {
				var added struct {
					Key         string `json:"key"`
					VerifierKey string `json:"verifier_key"`
				}
				if err := r.Decode(&added); err != nil {
					return err
				}
				p.f("key %s signs the log from now on, beside the old one\n  %s\n", added.Key, added.VerifierKey)
				return nil
			})
		}),
	})
	cmd.Flags().StringVar(&reason, "reason", "", "why, for the record")
	return cmd
}

func (a *app) keysRetireCommand() *cobra.Command {
	var reason string
	cmd := spends(&cobra.Command{
		Use:   "retire KEY [--reason TEXT]",
		Short: "End the use of a key that signs the log",
		Long: strings.TrimSpace(`
Record that a key signs no more, and delete it from the data directory. KEY is as keys
list shows it. The key counts for checkpoints up to the last one that it signed: a larger
one that somebody signs with it is refused. The only key that signs cannot be retired.
This needs level 90, unless rules say otherwise (action fleet.configure).`),
		Example: `  fleetledger keys retire 93ac9e2f --reason 'replaced'`,
		Args:    cobra.ExactArgs(1),
		RunE: a.does(func(cmd *cobra.Command, args []string) error {
			return a.post(cmd, agent.Path("v1", "keys", args[0], "retire"), reasonBody{reason}, func(p printer, r *agent.Response) error {
				var retired struct {
					Key   string `json:"key"`
					Until int64  `json:"until_size"`
				}
				if err := r.Decode(&retired); err != nil {
					return err
				}
				p.f("key %s is retired: it counts for checkpoints of at most %s\n", retired.Key, count(int(retired.Until), "event"))
				return nil
			})
		}),
	})
	cmd.Flags().StringVar(&reason, "reason", "", "why, for the record")
	return cmd
}

type reasonBody struct {
	Reason string `json:"reason,omitzero"`
}
