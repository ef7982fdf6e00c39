package main

import (
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/spf13/cobra"

	"fleetledger/agent"
)

// actor is an actor as the server shows it.
type actor struct {
	ID             string   `json:"id"`
	Kind           string   `json:"kind"`
	AuthorityLevel int      `json:"authority_level"`
	EffectiveLevel int      `json:"effective_level"`
	Scopes         []string `json:"scopes"`
	Parent         string   `json:"parent"`
	Cap            *int     `json:"cap"`
	Suspended      bool     `json:"suspended"`
	RegisteredBy   string   `json:"registered_by"`
	Active         bool     `json:"active"`
	Tokens         []struct {
		TokenID   string    `json:"token_id"`
		Use       string    `json:"use"`
		ExpiresAt time.Time `json:"expires_at"`
	} `json:"tokens"`
}

func (a *app) actorsCommand() *cobra.Command {
	return a.group("actors", "People, agents and machines, and their tokens", `  fleetledger actors list
  fleetledger actors register ana --kind human --level 30 --scope web`,
		a.actorsListCommand(), a.actorsShowCommand(), a.actorsRegisterCommand(), a.actorsPairCommand(), a.actorsChangeCommand(),
		a.actorsSuspendCommand("suspend", "Deny an actor and all that derive from it", true),
		a.actorsSuspendCommand("reinstate", "End a suspension", false),
		a.tokenCommand())
}

func (a *app) actorsListCommand() *cobra.Command {
	return pages(&cobra.Command{
		Use:     "list",
		Short:   "List the fleet's actors",
		Example: `  fleetledger actors list`,
		Args:    cobra.NoArgs,
		RunE: a.does(func(cmd *cobra.Command, _ []string) error {
			return a.get(cmd, "/v1/actors", pageQuery(cmd), func(p printer, r *agent.Response) error {
				var list page[actor]
				if err := r.Decode(&list); err != nil {
					return err
				}
				rows := [][]string{{"ID", "KIND", "LEVEL", "SCOPES", "PARENT", ""}}
				for _, x := range list.Items {
					rows = append(rows, []string{x.ID, x.Kind, x.level(), strings.Join(x.Scopes, " "), x.Parent, x.note()})
				}
				p.table(rows)
				a.showMore(cmd, list.NextCursor)
				return nil
			})
		}),
	})
}

// level is the effective level, with the actor's own where it differs.
func (x actor) level() string {
	s := strconv.Itoa(x.EffectiveLevel)
	if x.AuthorityLevel != x.EffectiveLevel {
		s += " (own " + strconv.Itoa(x.AuthorityLevel) + ")"
	}
	return s
}

// note says what keeps an actor from acting.
func (x actor) note() string {
	switch {
	case x.Suspended:
		return "suspended"
	case !x.Active:
		return "an actor above it is suspended"
	}
	return ""
}

func (x actor) show(p printer) {
	p.f("%s  %s, level %s", x.ID, x.Kind, x.level())
	if note := x.note(); note != "" {
		p.f(", %s", note)
	}
	p.f("\n")
	if len(x.Scopes) > 0 {
		p.f("  scopes  %s\n", strings.Join(x.Scopes, " "))
	}
	if x.Parent != "" {
		p.f("  parent  %s\n", x.Parent)
	}
	if x.Cap != nil {
		p.f("  cap     %d\n", *x.Cap)
	}
	for _, t := range x.Tokens {
		switch t.Use {
		case "device":
			p.f("  device  %s\n", t.TokenID)
		case "pairing":
			p.f("  code    %s, until %s\n", t.TokenID, when(t.ExpiresAt))
		default:
			p.f("  token   %s\n", t.TokenID)
		}
	}
}

func (a *app) actorsShowCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "show ID",
		Short:   "Show one actor",
		Example: `  fleetledger actors show ana`,
		Args:    cobra.ExactArgs(1),
		RunE: a.does(func(cmd *cobra.Command, args []string) error {
			return a.get(cmd, agent.Path("v1", "actors", args[0]), nil, a.showActor)
		}),
	}
}

// showActor shows an answer that is an actor, or has one.
func (a *app) showActor(p printer, r *agent.Response) error {
	var answer struct {
		actor
		Actor *actor `json:"actor"`
	}
	if err := r.Decode(&answer); err != nil {
		return err
	}
	if answer.Actor != nil {
		answer.actor = *answer.Actor
	}
	answer.actor.show(p)
	return nil
}

// registerActor is the body of POST /v1/actors.
type registerActor struct {
	ID             string   `json:"id"`
	Kind           string   `json:"kind"`
	AuthorityLevel *int     `json:"authority_level,omitzero"`
	Scopes         []string `json:"scopes"`
	Parent         string   `json:"parent,omitzero"`
	Cap            *int     `json:"cap,omitzero"`
}

func (a *app) actorsRegisterCommand() *cobra.Command {
	body := registerActor{Scopes: []string{}}
	var level, limit int
	var save string
	cmd := &cobra.Command{
		Use:   "register ID --kind human|agent|machine [--level N] [--scope S]...",
		Short: "Register a person, an agent or a machine",
		Long: `Register an actor. Its token is shown this once, or written with --save-token to a
file that only you can read. With --parent the actor acts under another one and its
level is at most that one's.`,
		Example: `  fleetledger actors register ana --kind human --level 30 --scope web --save-token ana.token
  fleetledger actors register m1 --kind machine --level 10 --save-token m1.token
  fleetledger actors register ana-bot --kind agent --parent ana --cap 20`,
		Args: cobra.ExactArgs(1),
		RunE: a.does(func(cmd *cobra.Command, args []string) error {
			body.ID = args[0]
			if cmd.Flags().Changed("level") {
				body.AuthorityLevel = &level
			}
			if cmd.Flags().Changed("cap") {
				body.Cap = &limit
			}
			return a.withNewToken(cmd, "/v1/actors", body, save, func(p printer, r *agent.Response) error {
				var answer struct {
					Actor  actor  `json:"actor"`
					Capped bool   `json:"capped"`
					Reason string `json:"reason"`
				}
				if err := r.Decode(&answer); err != nil {
					return err
				}
				answer.Actor.show(p)
				if answer.Capped {
					p.f("  capped  %s\n", answer.Reason)
				}
				return nil
			})
		}),
	}
	flags := cmd.Flags()
	flags.StringVar(&body.Kind, "kind", "", "human, agent or machine")
	flags.IntVar(&level, "level", 0, "authority level, 0 to 100")
	flags.StringArrayVar(&body.Scopes, "scope", []string{}, "a scope it is a member of (repeat)")
	flags.StringVar(&body.Parent, "parent", "", "the actor it acts under")
	flags.IntVar(&limit, "cap", 0, "level that it never exceeds")
	flags.StringVar(&save, "save-token", "", "write the token to this file instead of showing it")
	_ = cmd.MarkFlagRequired("kind") // it exists
	return spends(cmd)
}

func (a *app) actorsChangeCommand() *cobra.Command {
	var level int
	var add, remove []string
	cmd := &cobra.Command{
		Use:     "change ID [--level N] [--add-scope S]... [--remove-scope S]...",
		Short:   "Change an actor's level or scopes",
		Example: `  fleetledger actors change ana --level 50 --add-scope ops`,
		Args:    cobra.ExactArgs(1),
		RunE: a.does(func(cmd *cobra.Command, args []string) error {
			body := map[string]any{}
			if cmd.Flags().Changed("level") {
				body["authority_level"] = level
			}
			if len(add) > 0 {
				body["add_scopes"] = add
			}
			if len(remove) > 0 {
				body["remove_scopes"] = remove
			}
			if len(body) == 0 {
				return misused("change what? Give --level, --add-scope or --remove-scope")
			}
			return a.changeActor(cmd, args[0], body)
		}),
	}
	flags := cmd.Flags()
	flags.IntVar(&level, "level", 0, "new authority level, 0 to 100")
	flags.StringArrayVar(&add, "add-scope", nil, "make it a member (repeat)")
	flags.StringArrayVar(&remove, "remove-scope", nil, "end its membership (repeat)")
	return spends(cmd)
}

func (a *app) actorsSuspendCommand(use, short string, suspended bool) *cobra.Command {
	return spends(&cobra.Command{
		Use:     use + " ID",
		Short:   short,
		Example: `  fleetledger actors ` + use + ` ana-bot`,
		Args:    cobra.ExactArgs(1),
		RunE: a.does(func(cmd *cobra.Command, args []string) error {
			return a.changeActor(cmd, args[0], map[string]any{"suspended": suspended})
		}),
	})
}

func (a *app) changeActor(cmd *cobra.Command, id string, body any) error {
	return a.request(cmd, agent.Request{
		Method: http.MethodPatch, Path: agent.Path("v1", "actors", id), Body: body, ApprovalID: approvalOf(cmd),
	}, a.showActor)
}

func (a *app) tokenCommand() *cobra.Command {
	var save string
	issue := &cobra.Command{
		Use:     "issue ACTOR",
		Short:   "Give an actor another token",
		Example: `  fleetledger actors token issue ana --save-token ana.token`,
		Args:    cobra.ExactArgs(1),
		RunE: a.does(func(cmd *cobra.Command, args []string) error {
			return a.withNewToken(cmd, agent.Path("v1", "actors", args[0], "tokens"), struct{}{}, save, func(p printer, r *agent.Response) error {
				var answer struct {
					TokenID string `json:"token_id"`
				}
				if err := r.Decode(&answer); err != nil {
					return err
				}
				p.f("%s has token %s\n", args[0], answer.TokenID)
				return nil
			})
		}),
	}
	issue.Flags().StringVar(&save, "save-token", "", "write the token to this file instead of showing it")
	revoke := &cobra.Command{
		Use:     "revoke ACTOR TOKEN_ID",
		Short:   "End a token",
		Example: `  fleetledger actors token revoke ana 0193b2c5-7d3e-7c11-9f2a-3b6c0e8d4a51`,
		Args:    cobra.ExactArgs(2),
		RunE: a.does(func(cmd *cobra.Command, args []string) error {
			return a.request(cmd, agent.Request{
				Method: http.MethodDelete, Path: agent.Path("v1", "actors", args[0], "tokens", args[1]), ApprovalID: approvalOf(cmd),
			}, func(p printer, _ *agent.Response) error {
				p.f("token %s of %s is revoked\n", args[1], args[0])
				return nil
			})
		}),
	}
	return a.group("token", "Give out and end tokens", issue.Example, spends(issue), spends(revoke))
}

// withNewToken makes a request whose answer holds a token: it is shown, or
// written to the file save and then not shown anywhere.
func (a *app) withNewToken(cmd *cobra.Command, path string, body any, save string, show func(printer, *agent.Response) error) error {
	c, err := a.client(cmd)
	if err != nil {
		return err
	}
	resp, err := c.Do(cmd.Context(), agent.Request{Method: http.MethodPost, Path: path, Body: body, ApprovalID: approvalOf(cmd)})
	if err != nil {
		return a.unanswered(err)
	}
	if resp.Status == http.StatusAccepted {
		return a.waiting(cmd, resp)
	}
	var answer struct {
		Token *string `json:"token"`
	}
	if err := resp.Decode(&answer); err != nil {
		return err
	}
	if save != "" && answer.Token != nil {
		if err := writeToken(save, *answer.Token); err != nil {
			// It is shown nowhere else, ever: better here than lost.
			printer{a.err}.f("the token could not be saved: %s\n", err)
			save = ""
		} else if resp.Body, err = withoutToken(resp.Body); err != nil {
			return err
		}
	}
	return a.show(resp, func(p printer, r *agent.Response) error {
		if err := show(p, r); err != nil {
			return err
		}
		switch {
		case answer.Token == nil:
			p.f("  token   was shown when this was asked first; for another: fleetledger actors token issue ID\n")
		case save != "":
			p.f("  token   in %s\n", save)
		default:
			p.f("  token   %s\n", *answer.Token)
			p.f("          keep it now: it is shown this once\n")
		}
		return nil
	})
}

// withoutToken is an answer whose token went to a file.
func withoutToken(body jsontext.Value) (jsontext.Value, error) {
	var members map[string]jsontext.Value
	if err := json.Unmarshal(body, &members); err != nil {
		return nil, err
	}
	members["token"] = jsontext.Value("null")
	return json.Marshal(members, json.Deterministic(true))
}
