package main

import (
	"net/http"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"fleetledger/agent"
)

// pairMachine is the body of POST /v1/pairings.
type pairMachine struct {
	ID             string   `json:"id"`
	AuthorityLevel *int     `json:"authority_level,omitzero"`
	Scopes         []string `json:"scopes,omitzero"`
	Parent         string   `json:"parent,omitzero"`
	Cap            *int     `json:"cap,omitzero"`
	ExpiresSeconds int      `json:"expires_s"`
}

func (a *app) actorsPairCommand() *cobra.Command {
	var body pairMachine
	var level, limit int
	var expires time.Duration
	cmd := &cobra.Command{
		Use:   "pair MACHINE [--level N] [--scope S] [--expires 15m]",
		Short: "Make a code by which a machine joins with a key of its own",
		Long: strings.TrimSpace(`
Make a pairing code, shown this once. On the machine, fleetledger agent --pair CODE
redeems it: the agent makes a key, keeps it in its state directory, and signs every
request with it from then on. A code works once, and not after it has expired.

The machine is registered with it, with level 0 unless --level says otherwise. For
one that is registered, name its id alone: another device of it is paired, and what
it has goes on working until it is ended with fleetledger actors token revoke.`),
		Example: `  fleetledger actors pair m1 --level 10
  fleetledger agent --pair default~m1~7h4kq2...   on the machine`,
		Args: cobra.ExactArgs(1),
		RunE: a.does(func(cmd *cobra.Command, args []string) error {
			body.ID = args[0]
			if cmd.Flags().Changed("level") {
				body.AuthorityLevel = &level
			}
			if cmd.Flags().Changed("cap") {
				body.Cap = &limit
			}
			if expires < time.Second {
				return misused("--expires is at least 1s")
			}
			body.ExpiresSeconds = int(expires / time.Second)
			return a.post(cmd, "/v1/pairings", body, a.showPairing)
		}),
	}
	flags := cmd.Flags()
	flags.IntVar(&level, "level", 0, "authority level, 0 to 100")
	flags.StringArrayVar(&body.Scopes, "scope", nil, "the scope it is a member of: its own people and org_admins use it, others ask")
	flags.StringVar(&body.Parent, "parent", "", "the actor it acts under")
	flags.IntVar(&limit, "cap", 0, "level that it never exceeds")
	flags.DurationVar(&expires, "expires", 15*time.Minute, "how long the code can be redeemed")
	return spends(cmd)
}

func (a *app) showPairing(p printer, r *agent.Response) error {
	var answer struct {
		PairingID string    `json:"pairing_id"`
		Code      *string   `json:"code"`
		Machine   string    `json:"machine"`
		ExpiresAt time.Time `json:"expires_at"`
	}
	if err := r.Decode(&answer); err != nil {
		return err
	}
	if answer.Code == nil {
		p.f("the code for %s was shown when this was asked first; for another: fleetledger actors pair %s\n", answer.Machine, answer.Machine)
		return nil
	}
	p.f("%s\n", *answer.Code)
	printer{a.err}.f("Keep it: it is shown this once, and pairs %s once, until %s. On that machine:\n  fleetledger agent --pair %s --server %s\n",
		answer.Machine, when(answer.ExpiresAt), shellWord(*answer.Code), shellWord(a.serverURL()))
	return nil
}

// pair redeems a pairing code into the state directory.
func (a *app) pair(cmd *cobra.Command, code, state string) (agent.Device, error) {
	device, err := agent.Pair(cmd.Context(), a.serverURL(), code, state)
	if err != nil {
		if p := problemIn(err); p != nil && p.Status == http.StatusUnauthorized {
			return device, tryNext(err, "fleetledger actors pair MACHINE, by somebody who registers machines, and its new code here")
		}
		return device, a.unanswered(err)
	}
	return device, nil
}
