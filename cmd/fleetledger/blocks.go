package main

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/spf13/cobra"

	"fleetledger/agent"
	"fleetledger/events"
)

func blockPath(hash string, more ...string) string {
	return agent.Path(append([]string{"v1", "blocks", hash}, more...)...)
}

func (a *app) blocksCommand() *cobra.Command {
	return a.group("blocks", "Claims of peers, taken field by field", `  fleetledger blocks publish --focus 'the release' --mood calm`,
		spends(a.blocksPublishCommand()), a.blocksAcceptCommand(), a.blocksShowCommand(), a.blocksListCommand(), a.blocksExportCommand(), spends(a.blocksImportCommand()))
}

// block is a block as the server shows it.
type block struct {
	Hash        string            `json:"hash"`
	Fields      map[string]string `json:"fields"`
	Parents     []string          `json:"parents"`
	Ancestors   []string          `json:"ancestors"`
	PublishedBy string            `json:"published_by"`
	PublishedAt time.Time         `json:"published_at"`
	Origin      *struct {
		Fleet string    `json:"fleet"`
		By    string    `json:"by"`
		At    time.Time `json:"at"`
	} `json:"origin"`
	Erased bool `json:"erased"`
}

// acceptance is what one receiver took of a block.
type acceptance struct {
	Hash       string            `json:"hash"`
	StoredHash string            `json:"stored_hash"`
	Fields     map[string]string `json:"fields"`
	OwnThought bool              `json:"own_thought"`
	Own        []string          `json:"own"`
	Decisions  []struct {
		Field    string `json:"field"`
		Accepted bool   `json:"accepted"`
		Narrowed bool   `json:"narrowed"`
		Reason   string `json:"reason"`
	} `json:"decisions"`
	By string    `json:"by"`
	At time.Time `json:"at"`
}

func (a *app) blocksPublishCommand() *cobra.Command {
	texts := map[string]*string{}
	var parents []string
	cmd := &cobra.Command{
		Use:   "publish --FIELD TEXT...",
		Short: "Publish a claim of up to seven fields",
		Long: `Publish a claim: up to seven fields of text, and the claims that it stems from. Its
name is the hash of what it says and of its parents. What was published before, by
anybody, is told and not recorded again.`,
		Example: `  fleetledger blocks publish --focus 'the release' --issue 'vet fails on m1' --mood calm
  fleetledger blocks publish --commitment 'I mend it' --parent cbab5f78daaaffd4d3e9c12f1af41a4197f73831e77111079c10e7c41f68fdac`,
		Args: cobra.NoArgs,
		RunE: a.does(func(cmd *cobra.Command, _ []string) error {
			body := struct {
				Fields  map[string]string `json:"fields"`
				Parents []string          `json:"parents"`
			}{map[string]string{}, append([]string{}, parents...)}
			for name, text := range texts {
				if cmd.Flags().Changed(name) {
					body.Fields[name] = *text
				}
			}
			if len(body.Fields) == 0 {
				return misused("what does it say? give one of --%s at least", strings.Join(events.BlockFields, ", --"))
			}
			return a.post(cmd, "/v1/blocks", body, func(p printer, r *agent.Response) error {
				var answer struct {
					Hash    string   `json:"hash"`
					Block   block    `json:"block"`
					Receipt *receipt `json:"receipt"`
				}
				if err := r.Decode(&answer); err != nil {
					return err
				}
				p.f("%s\n", answer.Hash)
				if answer.Receipt == nil {
					printer{a.err}.f("it was here already: %s published it at %s\n", answer.Block.PublishedBy, when(answer.Block.PublishedAt))
				}
				return nil
			})
		}),
	}
	for _, name := range events.BlockFields {
		texts[name] = cmd.Flags().String(name, "", "what it says of its "+name)
	}
	cmd.Flags().StringArrayVar(&parents, "parent", nil, "hash of a block that it stems from (repeat)")
	return cmd
}

func (a *app) blocksAcceptCommand() *cobra.Command {
	var floors, refuse []string
	cmd := &cobra.Command{
		Use:   "accept HASH",
		Short: "Take of a block what the rules let in, field by field",
		Long: `Take of a block what the rules for memory.accept.<field> let in, with the level of the
block's publisher, or less: what you refuse, or ask a higher level for, is refused for
you alone. A refused field is not recorded. It exits with 1 if nothing was taken.`,
		Example: `  fleetledger blocks accept cbab5f78daaaffd4d3e9c12f1af41a4197f73831e77111079c10e7c41f68fdac
  fleetledger blocks accept cbab5f78daaaffd4d3e9c12f1af41a4197f73831e77111079c10e7c41f68fdac --min-level commitment=70 --refuse mood`,
		Args: cobra.ExactArgs(1),
		RunE: a.does(func(cmd *cobra.Command, args []string) error {
			narrow := events.Narrowing{MinLevels: map[string]events.Level{}, Refuse: refuse}
			for _, f := range floors {
				name, text, ok := strings.Cut(f, "=")
				level, usable := events.ParseLevel([]byte(text))
				if !ok || !usable {
					return misused("--min-level is FIELD=LEVEL with a level from 0 to 100, not %q", f)
				}
				narrow.MinLevels[name] = level
			}
			body := struct {
				Narrow events.Narrowing `json:"narrow"`
			}{narrow}
			nothing := false
			err := a.post(cmd, blockPath(args[0], "accept"), body, func(p printer, r *agent.Response) error {
				var x acceptance
				if err := r.Decode(&x); err != nil {
					return err
				}
				showAcceptance(p, x, "")
				nothing = len(x.Fields) == 0
				return nil
			})
			if err == nil && nothing {
				return errQuiet
			}
			return err
		}),
	}
	cmd.Flags().StringArrayVar(&floors, "min-level", nil, "FIELD=LEVEL: take the field only from a publisher of this level (repeat)")
	cmd.Flags().StringArrayVar(&refuse, "refuse", nil, "do not take this field (repeat)")
	return cmd
}

// showAcceptance prints what was taken and what was not.
func showAcceptance(p printer, x acceptance, indent string) {
	for _, d := range x.Decisions {
		switch {
		case d.Accepted:
			p.f("%s%s: taken\n", indent, d.Field)
			p.block(indent+"  ", x.Fields[d.Field])
		case d.Narrowed:
			p.f("%s%s: refused by %s itself\n", indent, d.Field, x.By)
		default:
			p.f("%s%s: refused: %s\n", indent, d.Field, d.Reason)
		}
	}
	if x.OwnThought {
		p.f("%san own thought of %s that came back: %s\n", indent, x.By, strings.Join(x.Own, ", "))
	}
	switch x.StoredHash {
	case "":
		p.f("%snothing was taken\n", indent)
	case x.Hash:
		p.f("%swhole, as %s\n", indent, x.StoredHash)
	default:
		p.f("%sin part, as %s\n", indent, x.StoredHash)
	}
}

func (a *app) blocksShowCommand() *cobra.Command {
	var at uint64
	cmd := &cobra.Command{
		Use:     "show HASH",
		Short:   "Show a block, what it stems from, and what was taken of it",
		Example: `  fleetledger blocks show cbab5f78daaaffd4d3e9c12f1af41a4197f73831e77111079c10e7c41f68fdac`,
		Args:    cobra.ExactArgs(1),
		RunE: a.does(func(cmd *cobra.Command, args []string) error {
			q := url.Values{}
			if cmd.Flags().Changed("at") {
				q.Set("at", strconv.FormatUint(at, 10))
			}
			return a.get(cmd, blockPath(args[0]), q, showBlock)
		}),
	}
	cmd.Flags().Uint64Var(&at, "at", 0, "as the ledger knew it at this position")
	return cmd
}

func showBlock(p printer, r *agent.Response) error {
	var b struct {
		block
		Acceptances []acceptance `json:"acceptances"`
		All         int          `json:"acceptances_total"`
	}
	if err := r.Decode(&b); err != nil {
		return err
	}
	p.f("block %s\n", b.Hash)
	p.f("  published by %s at %s\n", b.PublishedBy, when(b.PublishedAt))
	if o := b.Origin; o != nil {
		p.f("  imported: by the word of its file, %s published it in fleet %s at %s\n", o.By, o.Fleet, when(o.At))
	}
	for _, h := range b.Parents {
		p.f("  stems from %s\n", h)
	}
	if more := len(b.Ancestors) - len(b.Parents); more > 0 {
		p.f("  and from %s before them\n", count(more, "block"))
	}
	if b.Erased {
		p.f("  what it said was erased\n")
	}
	for _, name := range events.BlockFields {
		if text, ok := b.Fields[name]; ok {
			p.f("  %s\n", name)
			p.block("    ", text)
		}
	}
	for _, x := range b.Acceptances {
		p.f("  %s looked at it at %s\n", x.By, when(x.At))
		showAcceptance(p, x, "    ")
	}
	if more := b.All - len(b.Acceptances); more > 0 {
		p.f("  and %s before: fleetledger events tail --stream block-%s\n", count(more, "acceptance"), b.Hash)
	}
	return nil
}

func (a *app) blocksListCommand() *cobra.Command {
	var publisher, receiver, parent string
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List blocks, newest first",
		Example: `  fleetledger blocks list --published-by ana
  fleetledger blocks list --accepted-by carl`,
		Args: cobra.NoArgs,
		RunE: a.does(func(cmd *cobra.Command, _ []string) error {
			q := pageQuery(cmd)
			setQuery(q, "published_by", publisher)
			setQuery(q, "accepted_by", receiver)
			setQuery(q, "parent", parent)
			return a.get(cmd, "/v1/blocks", q, func(p printer, r *agent.Response) error {
				var list page[block]
				if err := r.Decode(&list); err != nil {
					return err
				}
				if len(list.Items) == 0 {
					a.nothing("blocks", list.Scope)
					return nil
				}
				rows := [][]string{{"BLOCK", "PUBLISHED", "BY", "ANCESTORS", "SAYS"}}
				for _, b := range list.Items {
					says := ""
					for _, name := range events.BlockFields {
						if text, ok := b.Fields[name]; ok && says == "" {
							says = name + ": " + text
						}
					}
					rows = append(rows, []string{b.Hash, when(b.PublishedAt), b.PublishedBy, strconv.Itoa(len(b.Ancestors)), firstRunes(says, 60)})
				}
				p.table(rows)
				a.showMore(cmd, list.NextCursor)
				return nil
			})
		}),
	}
	cmd.Flags().StringVar(&publisher, "published-by", "", "only those that this actor published")
	cmd.Flags().StringVar(&receiver, "accepted-by", "", "only those that this actor took something of")
	cmd.Flags().StringVar(&parent, "parent", "", "only those that stem from this block directly")
	return pages(cmd)
}

// firstRunes is the beginning of a text, up to n characters.
func firstRunes(s string, n int) string {
	if r := []rune(s); len(r) > n {
		return string(r[:n]) + "…"
	}
	return s
}

func (a *app) blocksExportCommand() *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use:   "export HASH",
		Short: "Write a block with its whole lineage as JSON, for another fleet",
		Long: `Write a block and everything that it stems from as one JSON value. Another fleet
imports it, and checks every hash. Who published what is not part of a hash: that is
the word of the file.`,
		Example: `  fleetledger blocks export cbab5f78daaaffd4d3e9c12f1af41a4197f73831e77111079c10e7c41f68fdac --output claim.json`,
		Args:    cobra.ExactArgs(1),
		RunE: a.does(func(cmd *cobra.Command, args []string) error {
			c, err := a.client(cmd)
			if err != nil {
				return err
			}
			resp, err := c.Get(cmd.Context(), blockPath(args[0], "export"), nil)
			switch {
			case err != nil:
				return a.unanswered(err)
			case output == "":
				return a.printJSON(resp.Body)
			}
			return os.WriteFile(output, resp.Body, 0o666)
		}),
	}
	cmd.Flags().StringVarP(&output, "output", "o", "", "write to this file")
	return cmd
}

// A file is sent in parts: as many of its blocks at once as these bounds allow.
const (
	importBlocks = 128
	importBytes  = 512 << 10
)

func (a *app) blocksImportCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "import FILE|-",
		Short: "Publish the blocks of an exported file",
		Long: `Publish the blocks of a file that "blocks export" wrote. Every hash and what stems from
what is checked by the server; a file that was changed is refused. Blocks that are here
already are left alone. Here you are the publisher, and your level is tested when
others accept.`,
		Example: `  fleetledger blocks import claim.json`,
		Args:    cobra.ExactArgs(1),
		RunE: a.does(func(cmd *cobra.Command, args []string) error {
			raw, err := a.readInput(args[0])
			if err != nil {
				return err
			}
			var file struct {
				Format string           `json:"format"`
				Blocks []jsontext.Value `json:"blocks"`
			}
			if err := json.Unmarshal(raw, &file); err != nil {
				return fmt.Errorf("%s is no exported block: %w", args[0], err)
			}
			if len(file.Blocks) == 0 {
				return fmt.Errorf("%s holds no block: fleetledger blocks export writes one", args[0])
			}
			c, err := a.client(cmd)
			if err != nil {
				return err
			}
			imported, here := []string{}, []string{}
			approval := approvalOf(cmd)
			for rest := file.Blocks; len(rest) > 0; {
				n, size := 0, 0
				for n < len(rest) && n < importBlocks && (n == 0 || size+len(rest[n]) <= importBytes) {
					size += len(rest[n])
					n++
				}
				part := file
				part.Blocks, rest = rest[:n], rest[n:]
				resp, err := c.Do(cmd.Context(), agent.Request{Method: http.MethodPost, Path: "/v1/blocks/import", Body: part, ApprovalID: approval})
				if err == nil && resp.Status == http.StatusAccepted {
					return errors.Join(a.tellBlocks(imported, here), a.waiting(cmd, resp))
				}
				if err != nil {
					return errors.Join(a.tellBlocks(imported, here), a.unanswered(err))
				}
				var answer struct {
					Imported []string `json:"imported"`
					Here     []string `json:"here"`
				}
				if err := resp.Decode(&answer); err != nil {
					return err
				}
				if len(answer.Imported) > 0 {
					approval = "" // it is spent
				}
				imported, here = append(imported, answer.Imported...), append(here, answer.Here...)
			}
			if a.json {
				return a.printValue(map[string][]string{"imported": imported, "here": here})
			}
			return a.tellBlocks(imported, here)
		}),
	}
}

// tellBlocks tells what of a file was imported so far; nothing is nothing to tell.
func (a *app) tellBlocks(imported, here []string) error {
	if a.json || len(imported)+len(here) == 0 {
		return nil
	}
	p := printer{a.out}
	for _, h := range imported {
		p.f("%s: imported\n", h)
	}
	printer{a.err}.f("%d imported, %d already there\n", len(imported), len(here))
	return nil
}
