package main

import (
	"slices"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/spf13/cobra"

	"fleetledger/agent"
)

func (a *app) limitsCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "limits",
		Short:   "Show what the server takes at most",
		Example: `  fleetledger limits`,
		Args:    cobra.NoArgs,
		RunE: a.does(func(cmd *cobra.Command, _ []string) error {
			return a.get(cmd, "/v1/limits", nil, func(p printer, r *agent.Response) error {
				var limits map[string]jsontext.Value
				if err := r.Decode(&limits); err != nil {
					return err
				}
				rows := [][]string{}
				for name, value := range limits {
					rows = append(rows, []string{name, value.String()})
				}
				slices.SortFunc(rows, slices.Compare)
				p.table(rows)
				return nil
			})
		}),
	}
}
