package main

import (
	"net/http"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/spf13/cobra"

	"fleetledger/agent"
)

func (a *app) settingsCommand() *cobra.Command {
	return a.group("settings", "What holds for the whole fleet", `  fleetledger settings show
  fleetledger settings set heartbeat_s=5 separation_of_duties=true`,
		a.settingsShowCommand(), a.settingsSetCommand())
}

func (a *app) settingsShowCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "show",
		Short:   "Show the settings in force",
		Example: `  fleetledger settings show`,
		Args:    cobra.NoArgs,
		RunE: a.does(func(cmd *cobra.Command, _ []string) error {
			return a.get(cmd, "/v1/settings", nil, func(p printer, r *agent.Response) error { return showMembers(p, r.Body) })
		}),
	}
}

func (a *app) settingsSetCommand() *cobra.Command {
	return spends(&cobra.Command{
		Use:   "set NAME=VALUE...",
		Short: "Change settings",
		Long: `Change settings by the names that settings show lists; what is not named stays as it
is. This needs level 90, unless rules say otherwise.`,
		Example: `  fleetledger settings set output=hash_only
  fleetledger settings set heartbeat_s=5 separation_of_duties=true`,
		Args: cobra.MinimumNArgs(1),
		RunE: a.does(func(cmd *cobra.Command, args []string) error {
			body := map[string]any{}
			for _, arg := range args {
				name, value, ok := strings.Cut(arg, "=")
				if !ok || name == "" {
					return misused("%q is not NAME=VALUE", arg)
				}
				if _, twice := body[name]; twice {
					return misused("%s is given twice", name)
				}
				body[name] = settingValue(value)
			}
			return a.request(cmd, agent.Request{Method: http.MethodPatch, Path: "/v1/settings", Body: body, ApprovalID: approvalOf(cmd)},
				func(p printer, r *agent.Response) error {
					var answer struct {
						Changed jsontext.Value `json:"changed"`
					}
					if err := r.Decode(&answer); err != nil {
						return err
					}
					return showMembers(p, answer.Changed)
				})
		}),
	})
}

// settingValue is an integer, true, false or a word, as it looks.
func settingValue(s string) any {
	if n, err := strconv.Atoi(s); err == nil {
		return n
	}
	if b, err := strconv.ParseBool(s); err == nil && (s == "true" || s == "false") {
		return b
	}
	return s
}

// showMembers writes the members of a JSON object, in their order, a line each.
func showMembers(p printer, raw []byte) error {
	dec := jsontext.NewDecoder(strings.NewReader(string(raw)))
	if _, err := dec.ReadToken(); err != nil {
		return err
	}
	var rows [][]string
	for dec.PeekKind() == '"' {
		name, err := dec.ReadToken()
		if err != nil {
			return err
		}
		field := name.String()
		value, err := dec.ReadValue()
		if err != nil {
			return err
		}
		text := string(value)
		if value.Kind() == '"' {
			if err := json.Unmarshal(value, &text); err != nil {
				return err
			}
		}
		rows = append(rows, []string{field, text})
	}
	p.table(rows)
	return nil
}
