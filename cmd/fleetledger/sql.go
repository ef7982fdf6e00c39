package main

import (
	"encoding/csv"
	"io"
	"os"
	"strconv"
	"strings"
	"unicode"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/spf13/cobra"

	"fleetledger/agent"
)

func (a *app) sqlCommand() *cobra.Command {
	var params []string
	var format string
	var limit int
	var forgotten bool
	cmd := &cobra.Command{
		Use:   "sql QUERY",
		Short: "Ask in SQL what happened",
		Long: strings.TrimSpace(`
Ask a fleet's view in SQL, the language of SQLite. It has the tables tasks, attempts,
runs, conclusions, gates, approvals, rules, actors, sections and blocks. What they
hold stands in their definitions:

  fleetledger sql "SELECT sql FROM sqlite_schema WHERE name = 'runs'"

The query is one statement that reads: SELECT, VALUES or WITH. It gives at most
10,000 rows and 4 MiB, within 5 seconds. With - for QUERY it is read from stdin.
Each --param stands for one ? in the query, in their order: a number, true, false,
null, or else a text.`),
		Example: `  fleetledger sql "SELECT command, count(*) AS runs, sum(result = 'failed') AS failed FROM runs GROUP BY command ORDER BY failed DESC LIMIT 20"
  fleetledger sql "SELECT failure, count(*), count(DISTINCT command) FROM runs WHERE failure IS NOT NULL GROUP BY failure ORDER BY 2 DESC" --format csv
  fleetledger sql "SELECT ended_at, exit_code FROM runs WHERE command = ? ORDER BY position DESC" --param "go test ./..."`,
		Args: cobra.ExactArgs(1),
		RunE: a.does(func(cmd *cobra.Command, args []string) error {
			if format != "table" && format != "csv" {
				return misused("--format %s: it is table or csv; --json gives JSON", format)
			}
			query := args[0]
			if query == "-" {
				b, err := io.ReadAll(os.Stdin)
				if err != nil {
					return err
				}
				query = string(b)
			}
			body := map[string]any{"query": strings.TrimSuffix(strings.TrimSpace(query), ";"), "params": sqlParams(params), "limit": limit}
			if forgotten {
				body["include_forgotten"] = true
			}
			return a.post(cmd, "/v1/sql", body, func(p printer, r *agent.Response) error { return a.showTable(p, r, format) })
		}),
	}
	cmd.Flags().StringArrayVar(&params, "param", nil, "what a ? of the query stands for; may be repeated")
	cmd.Flags().StringVar(&format, "format", "table", "how rows are written: table, csv")
	cmd.Flags().IntVar(&limit, "limit", 1000, "how many rows at most")
	cmd.Flags().BoolVar(&forgotten, "include-forgotten", false, "also runs that you, or all, have forgotten")
	return cmd
}

// sqlParams are values as the server takes them: what reads as a JSON number,
// boolean or null is one, everything else a text.
func sqlParams(texts []string) []any {
	out := []any{}
	for _, t := range texts {
		v := jsontext.Value(t)
		if k := v.Kind(); v.IsValid() && (k == '0' || k == 't' || k == 'f' || k == 'n') {
			out = append(out, v)
		} else {
			out = append(out, t)
		}
	}
	return out
}

func (a *app) showTable(p printer, r *agent.Response, format string) error {
	var t struct {
		Columns     []string           `json:"columns"`
		Rows        [][]jsontext.Value `json:"rows"`
		TruncatedBy string             `json:"truncated_by"`
		Forgotten   string             `json:"forgotten"`
	}
	if err := r.Decode(&t); err != nil {
		return err
	}
	rows := [][]string{t.Columns}
	for _, row := range t.Rows {
		cells := make([]string, len(row))
		for i, v := range row {
			cells[i] = cellOf(v, format)
		}
		rows = append(rows, cells)
	}
	if format == "csv" {
		w := csv.NewWriter(p.w)
		for _, row := range rows {
			for i, cell := range row {
				row[i] = visibleLines(cell)
			}
			if err := w.Write(row); err != nil {
				return err
			}
		}
		w.Flush()
		if err := w.Error(); err != nil {
			return err
		}
	} else {
		p.table(rows)
	}
	if t.TruncatedBy != "" {
		printer{a.err}.f("there are more rows: %s are shown, cut by %s; ask for less, or for more with --limit\n", strconv.Itoa(len(t.Rows)), t.TruncatedBy)
	}
	a.leftOut(scope{Forgotten: t.Forgotten})
	return nil
}

// cellOf is a value as it stands in a table: of NULL nothing in CSV, as other tools
// read it.
func cellOf(v jsontext.Value, format string) string {
	switch {
	case v.Kind() == 'n' && format == "csv":
		return ""
	case v.Kind() == 'n':
		return "NULL"
	case v.Kind() == '"':
		var s string
		if json.Unmarshal(v, &s) == nil {
			return s
		}
	}
	return string(v)
}

// visibleLines is visible for a text whose line ends and tabs are kept, for they
// stand in quotes.
func visibleLines(s string) string {
	var b strings.Builder
	for _, r := range s {
		switch {
		case r == '\n' || r == '\t' || unicode.IsPrint(r):
			b.WriteRune(r)
		default:
			b.WriteString(visible(string(r)))
		}
	}
	return b.String()
}

// viewStatus is how a view stands.
type viewStatus struct {
	Position   uint64 `json:"position"`
	Head       uint64 `json:"head"`
	Rebuilding bool   `json:"rebuilding"`
	Rebuilt    uint64 `json:"rebuilt"`
	Rebuilds   int    `json:"rebuilds"`
	Fault      string `json:"fault"`
	Parked     []struct {
		Position uint64 `json:"position"`
		Type     string `json:"type"`
		Error    string `json:"error"`
	} `json:"parked"`
}

func (v viewStatus) show(p printer) {
	p.f("the view is made again: %d events\n", v.Position)
	for _, e := range v.Parked {
		p.f("  position %d, %s, could not be folded and is parked: %s\n", e.Position, e.Type, e.Error)
	}
}
