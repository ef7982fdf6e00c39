package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"fleetledger/agent"
	"fleetledger/agent/runner"
	"fleetledger/events"
	"fleetledger/events/secrets"
	"fleetledger/events/shell"
	"fleetledger/migrations/histories"
	"fleetledger/projections"
)

// importWorkers are the records that are on their way at once: the relay commits
// them together.
const importWorkers = 8

// importer sends what a history holds to a relay. Each item has its own
// Idempotency-Key, so the relay itself knows what it has.
type importer struct {
	c     *agent.Client
	began time.Time
	// head was the log's last position before the import: a receipt that is not
	// after it is of an earlier one.
	head      events.Position
	tailBytes int

	mu     sync.Mutex
	report importReport // guarded by mu
	// records finds what W2M conclusions are about: tasks by id, and subjects by
	// recordKey. Guarded by mu.
	records map[[16]byte]string
}

func newImporter(ctx context.Context, c *agent.Client, tool histories.Tool, path string) (*importer, error) {
	resp, err := c.Get(ctx, "/v1/limits", nil)
	if err != nil {
		return nil, err
	}
	var limits struct {
		TailBytes int `json:"tail_bytes"`
	}
	if err := resp.Decode(&limits); err != nil {
		return nil, err
	}
	head, err := strconv.ParseUint(resp.Header.Get("Ledger-Position"), 10, 64)
	if err != nil {
		return nil, fmt.Errorf("%s does not say its Ledger-Position: it may be no fleetledger relay", c.Address())
	}
	return &importer{
		c: c, began: time.Now(), head: events.Position(head), tailBytes: limits.TailBytes,
		report:  importReport{Tool: string(tool), Path: path, Machines: []string{}, Ends: map[string]int{}, Skipped: []importSkip{}},
		records: map[[16]byte]string{},
	}, nil
}

// run sends everything and returns when all answers are there. Its error is the
// first that ended the import.
func (im *importer) run(ctx context.Context, path string, o histories.Options) error {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	jobs := make(chan histories.Item)
	var workers, open sync.WaitGroup
	for range importWorkers {
		workers.Go(func() {
			for it := range jobs {
				if err := im.send(ctx, it); err != nil {
					stop(err)
				}
				open.Done()
			}
		})
	}
	progress := o.Progress
	o.Progress = func(p histories.Progress) {
		im.mu.Lock()
		im.report.Files = p.Done
		im.mu.Unlock()
		progress(p)
	}
	var err error
	for it, e := range histories.Read(ctx, histories.Tool(im.report.Tool), path, o) {
		if e != nil {
			err = e
			break
		}
		if !im.count(it) {
			continue
		}
		if it.Kind == histories.Concluded {
			open.Wait() // what it is about must have its id
		}
		open.Add(1)
		select {
		case jobs <- it:
		case <-ctx.Done():
			open.Done()
		}
		if ctx.Err() != nil {
			break
		}
	}
	close(jobs)
	workers.Wait()
	if err == nil || ctx.Err() != nil {
		err = cause(ctx, err)
	}
	return err
}

func (im *importer) finished(complete bool) importReport {
	im.mu.Lock()
	defer im.mu.Unlock()
	im.report.Complete = complete
	im.report.ElapsedMS = time.Since(im.began).Milliseconds()
	slices.Sort(im.report.Machines)
	return im.report
}

// count adds an item to the report, and reports whether it is to be sent.
func (im *importer) count(it histories.Item) bool {
	im.mu.Lock()
	defer im.mu.Unlock()
	r := &im.report
	if it.NotOK {
		r.NotOK++
	}
	switch it.Kind {
	case histories.Ran:
		r.Calls++
		return true
	case histories.NotARun:
		r.Calls++
		r.skip("call", it, it.Reason)
	case histories.Repeated:
		r.Repeated++
	case histories.Unreadable:
		what := "line"
		if it.Line == 0 {
			what = "file"
		}
		r.skip(what, it, it.Reason)
	case histories.Concluded:
		r.Conclusions++
		return true
	case histories.Document:
		return true
	}
	return false
}

// send sends one item. An error ends the import.
func (im *importer) send(ctx context.Context, it histories.Item) error {
	if ctx.Err() != nil {
		return nil
	}
	switch it.Kind {
	case histories.Concluded:
		return im.sendConclusion(ctx, it)
	case histories.Document:
		return im.sendDocument(ctx, it)
	}
	record := it.Run.Record
	if it.Run.Line != "" {
		record.Argv, record.Masked = shell.Line(it.Run.Line)
	} else {
		record.Masked = shell.Masked(record.Argv)
	}
	if record.Repo != "" {
		record.Repo = runner.RepoName(record.Repo, record.Cwd)
	}
	record.Memory.ReasonCode = "IMPORTED" // this record was never a machine's own
	record = secrets.MaskRecord(record)
	resp, position, err := im.post(ctx, it, "/v1/memory", struct {
		Record       events.MemoryRecord `json:"record"`
		ImportedFrom string              `json:"imported_from"`
		ImportedID   string              `json:"imported_id"`
	}{record, it.ImportedFrom(), it.Key()})
	recordID := ""
	if it.Tool == histories.W2M { // a conclusion may be about it
		id, idErr := im.recordID(ctx, resp, err)
		if idErr != nil {
			return idErr
		}
		recordID = id
	}
	im.mu.Lock()
	defer im.mu.Unlock()
	r := &im.report
	switch {
	case alreadyThere(err):
		r.AlreadyThere++
	case err != nil && stopOn(err):
		return err
	case err != nil:
		r.skip("call", it, refusedAs(err))
		return nil
	case position <= im.head:
		r.AlreadyThere++
	default:
		r.Imported++
	}
	r.Runs++
	r.Ends[envelopeEndPlain(record.Envelope)]++
	if record.Masked {
		r.Masked++
	}
	if err == nil && !slices.Contains(r.Machines, record.Machine) {
		r.Machines = append(r.Machines, record.Machine)
	}
	if recordID != "" {
		im.records[recordKey("task", it.TaskID)] = recordID
		im.records[recordKey("subject", subjectText(events.Subject{Argv: record.Argv, ExitCode: record.ExitCode, At: record.EndedAt}))] = recordID
	}
	return nil
}

// recordID is the id of the record that an answer is about, empty if it has none. Of one
// that was there in another form only the position is told.
func (im *importer) recordID(ctx context.Context, resp *agent.Response, err error) (string, error) {
	var answer struct {
		RecordID string `json:"record_id"`
		Items    []struct {
			ID string `json:"id"`
		} `json:"items"`
	}
	if !alreadyThere(err) {
		if err != nil {
			return "", nil // it is told by the caller
		}
		err := resp.Decode(&answer)
		return answer.RecordID, err
	}
	p, _ := errors.AsType[*agent.Problem](err)
	var id string
	if p.Fact("event_id", &id) {
		return id, nil
	}
	var position events.Position
	if !p.Fact("position", &position) || position == 0 {
		return "", nil
	}
	resp, err = im.c.Get(ctx, "/v1/events", url.Values{"after": {strconv.FormatUint(uint64(position-1), 10)}, "limit": {"1"}})
	if err != nil {
		return "", err
	}
	if err := resp.Decode(&answer); err != nil || len(answer.Items) == 0 {
		return "", err
	}
	return answer.Items[0].ID, nil
}

// sendConclusion sends a W2M conclusion about the record that it names. Without
// one it is still kept, about nothing, with its subject in the text.
func (im *importer) sendConclusion(ctx context.Context, it histories.Item) error {
	c := it.Conclusion
	body := concludeBody{Text: c.Text, ImportedID: it.Key()}
	im.mu.Lock()
	id := ""
	if c.TaskID != "" {
		id = im.records[recordKey("task", c.TaskID)]
	}
	if c.Subject != nil {
		if exact := im.records[recordKey("subject", subjectText(*c.Subject))]; exact != "" {
			id = exact
		}
	}
	im.mu.Unlock()
	switch {
	case id != "":
		body.About = &events.About{RecordID: id}
	case c.Subject != nil:
		body.Text += "\n\n(about " + subjectText(*c.Subject) + ")"
	case c.TaskID != "":
		body.Text += "\n\n(about W2M task " + c.TaskID + ")"
	}
	body.Text, _ = secrets.Mask(body.Text)
	_, position, err := im.post(ctx, it, "/v1/conclusions", body)
	im.mu.Lock()
	defer im.mu.Unlock()
	switch {
	case alreadyThere(err), err == nil && position <= im.head:
		im.report.ConclusionsAlreadyThere++
	case err != nil && stopOn(err):
		return err
	case err != nil:
		im.report.skip("conclusion", it, refusedAs(err))
	default:
		im.report.ConclusionsImported++
	}
	return nil
}

// sendDocument writes the sections of a document into the collective memory, those
// that are not there: what somebody has written since stays.
func (im *importer) sendDocument(ctx context.Context, it histories.Item) error {
	list, err := projections.ReadMarkdown(it.Text)
	if err != nil {
		im.mu.Lock()
		defer im.mu.Unlock()
		im.report.skip("document", it, err.Error())
		return nil
	}
	for _, s := range list {
		if err := im.sendSection(ctx, it, s); err != nil {
			return err
		}
	}
	return nil
}

func (im *importer) sendSection(ctx context.Context, it histories.Item, s projections.ReadSection) error {
	at := histories.Item{Kind: it.Kind, Tool: it.Tool, File: it.File, Line: s.Line}
	n := 0
	for _, text := range []*string{&s.Heading, &s.Text} {
		masked, found := secrets.Mask(*text)
		*text, n = masked, n+found
	}
	// A section has a key for each text that it had: one that was imported before and
	// was edited here since is known again.
	at.Session, at.Origin = s.Slug, events.SumHash(s.Heading, s.Text).String()
	var problem error
	var position events.Position
	retired := false
	if strings.TrimSpace(s.Text) != "" {
		var err error
		if retired, err = im.retired(ctx, s.Slug); err != nil {
			return err
		}
	}
	if strings.TrimSpace(s.Text) != "" && !retired {
		_, position, problem = im.request(ctx, agent.Request{
			Method: http.MethodPut, Path: sectionPath(s.Slug), Key: at.Key(),
			Body: sectionBody{Heading: s.Heading, Text: s.Text, Revision: new(events.Revision)},
		})
	}
	im.mu.Lock()
	defer im.mu.Unlock()
	r := &im.report
	r.Sections++
	p, _ := errors.AsType[*agent.Problem](problem)
	switch {
	case strings.TrimSpace(s.Text) == "":
		r.skip("section", at, "nothing stands under its heading")
	case retired:
		r.skip("section", at, "it was retired here: collective import brings it back")
	case p != nil && p.Code == "SECTION_CHANGED":
		r.skip("section", at, "one of its name says something else: collective import writes over it")
	case problem != nil && stopOn(problem):
		return problem
	case problem != nil:
		r.skip("section", at, refusedAs(problem))
	case position <= im.head: // 0 if it says what it said
		r.SectionsAlreadyThere++
	default:
		r.SectionsImported++
		for range n {
			r.skip("secret", at, "masked in a section")
		}
	}
	return nil
}

// retired reports whether a section was taken out of the collective memory.
func (im *importer) retired(ctx context.Context, slug string) (bool, error) {
	resp, err := im.c.Get(ctx, sectionPath(slug), nil)
	if p, ok := errors.AsType[*agent.Problem](err); ok && p.Code == "SECTION_NOT_FOUND" {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	var answer struct {
		Section section `json:"section"`
	}
	err = resp.Decode(&answer)
	return answer.Section.Retired, err
}

func (im *importer) post(ctx context.Context, it histories.Item, path string, body any) (*agent.Response, events.Position, error) {
	return im.request(ctx, agent.Request{Method: http.MethodPost, Path: path, Body: body, Key: it.Key()})
}

// request makes one request and returns its answer and the position of its receipt.
func (im *importer) request(ctx context.Context, r agent.Request) (*agent.Response, events.Position, error) {
	resp, err := im.c.Do(ctx, r)
	if err != nil {
		return nil, 0, err
	}
	var answer struct {
		ApprovalID string `json:"approval_id"`
		Receipt    struct {
			Position events.Position `json:"position"`
		} `json:"receipt"`
	}
	if err := resp.Decode(&answer); err != nil {
		return nil, 0, err
	}
	if resp.Status == http.StatusAccepted {
		return nil, 0, tryNext(fmt.Errorf("importing needs an approval for each record or section: the rules do not let this actor write it at once; %s was asked for and can be withdrawn", answer.ApprovalID),
			"fleetledger rules list")
	}
	return resp, answer.Receipt.Position, nil
}

// alreadyThere reports whether err says that the item was imported before: by another
// actor, or with another form, from a file that told more or less of it or for another
// machine.
func alreadyThere(err error) bool {
	p, ok := errors.AsType[*agent.Problem](err)
	return ok && (p.Code == "ALREADY_IMPORTED" || p.Code == "IDEMPOTENCY_MISMATCH")
}

// refusedAs is the reason of a record that the relay did not take.
func refusedAs(err error) string {
	p, ok := errors.AsType[*agent.Problem](err)
	if !ok || p.Code == "" {
		return "the relay refused it"
	}
	var problems []events.Problem
	if p.Fact("problems", &problems) && len(problems) > 0 {
		return "the relay refused it: " + p.Code + " " + problems[0].Path + " " + problems[0].Code
	}
	return "the relay refused it: " + p.Code
}

// envelopeEndPlain is how a run ended, in few words.
func envelopeEndPlain(e events.Envelope) string {
	if e.ExitCode != nil {
		return "exit " + strconv.Itoa(*e.ExitCode)
	}
	return strings.ReplaceAll(string(e.Outcome), "_", " ")
}

func subjectText(s events.Subject) string {
	end := "no exit code"
	if s.ExitCode != nil {
		end = "exit " + strconv.Itoa(*s.ExitCode)
	}
	if s.At.IsZero() {
		return projections.CommandLine(s.Argv) + ", " + end
	}
	return projections.CommandLine(s.Argv) + ", " + end + ", " + s.At.UTC().Format(time.RFC3339)
}

// recordKey is a short name for what a conclusion can be about.
func recordKey(kind, name string) [16]byte {
	sum := events.SumHash(kind, name)
	return [16]byte(sum[:16])
}
