package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"fleetledger/commands/audit"
	"fleetledger/events/pebblelog"
	"fleetledger/events/seal"
	"fleetledger/relay/witness"
)

// restoreName is where a restored copy lies in the data directory until it has been
// audited.
const restoreName = "restore.new"

func (a *app) restoreCommand() *cobra.Command {
	var checkpoints, witnessTexts []string
	cmd := &cobra.Command{
		Use:   "restore BACKUP",
		Short: "Put a backup in place, once it has been checked and audited",
		Long: strings.TrimSpace(`
Copy a backup to the data directory, which must be new or empty, or lack the backup's
fleets. Every file is held to the backup's list, and every event is audited, before
anything is put in place.

What was acknowledged after the backup was made is not in it. Give checkpoints that
you have kept, with --checkpoint: a backup that does not reach them, or holds another
record of those events, is refused. With --witness the same goes for what a witness has
cosigned, which is asked. A data directory that holds the fleet is never
written over: move it away, and keep it.`),
		Example: `  fleetledger restore /mnt/backup/2026-11-30 --data /var/lib/fleetledger --checkpoint kept.checkpoint`,
		Args:    cobra.ExactArgs(1),
		RunE: a.does(func(cmd *cobra.Command, args []string) error {
			witnesses, err := parseWitnesses(witnessTexts)
			if err != nil {
				return err
			}
			return a.restore(cmd, args[0], checkpoints, witnesses)
		}),
	}
	cmd.Flags().StringArrayVar(&checkpoints, "checkpoint", nil, "a file with a checkpoint that the backup must reach; may be repeated")
	cmd.Flags().StringArrayVar(&witnessTexts, "witness", nil, "a witness that must not have cosigned more, NAME+HASH+KEY@URL; may be repeated")
	return cmd
}

func (a *app) restore(cmd *cobra.Command, from string, checkpoints []string, witnesses []witness.Witness) error {
	m, err := readManifest(filepath.Join(from, manifestName))
	if errors.Is(err, fs.ErrNotExist) {
		return tryNext(fmt.Errorf("%s is no backup: it has no %s", from, manifestName), "name the directory that fleetledger backup made")
	}
	if err != nil {
		return err
	}
	kept, err := sortCheckpoints(m, checkpoints)
	if err != nil {
		return err
	}
	isNew, err := checkData(a.data, restoreName)
	if err != nil {
		return err
	}
	_, err = os.Lstat(a.data)
	made := errors.Is(err, fs.ErrNotExist)
	if err := os.MkdirAll(a.data, 0o755); err != nil {
		return fmt.Errorf("data directory: %w", err)
	}
	lock, err := lockData(a.data, false)
	if err != nil {
		return err
	}
	defer lock.Close()
	if !isNew {
		if err := a.lacksFleets(from, m); err != nil {
			return err
		}
	}

	part := filepath.Join(a.data, restoreName)
	if err := os.RemoveAll(part); err != nil {
		return err
	}
	note := a.newProgress("copied")
	err = copyBackup(cmd.Context(), from, part, m, note)
	note.end()
	if err == nil {
		_, err = checkData(from) // its format is there, and is what was listed
	}
	var reports map[string]audit.Report
	if err == nil {
		reports, err = a.auditCopy(cmd.Context(), part, m, kept)
	}
	if err == nil {
		for fleet, r := range reports {
			if !r.OK {
				if told := a.showCopy(cmd, "restore", from, m, reports); !errors.Is(told, errQuiet) {
					err = told
				}
				err = errors.Join(err, tryNext(fmt.Errorf("fleet %s of %s is not restored: its audit has findings; nothing was changed", fleet, from),
					"restore another backup, or look at this one: fleetledger audit --data "+shellWord(from)+" --fleet "+fleet))
				break
			}
		}
	}
	if err == nil {
		err = a.heldToWitnesses(cmd.Context(), part, m, witnesses)
	}
	if err == nil {
		err = a.place(part, m)
	}
	if err := errors.Join(err, os.RemoveAll(part)); err != nil {
		if isNew {
			removeLock(a.data)
		}
		if made {
			_ = os.Remove(a.data) // it is empty, and does no harm if it stays
		}
		return err
	}
	return a.showCopy(cmd, "restore", a.data, m, reports)
}

// removeLock leaves a directory that stays empty as it was.
func removeLock(dir string) { _ = os.Remove(filepath.Join(dir, "LOCK")) }

// sortCheckpoints reads the files and returns their checkpoints by fleet.
func sortCheckpoints(m manifest, files []string) (map[string][][]byte, error) {
	out := map[string][][]byte{}
	for _, name := range files {
		signed, err := os.ReadFile(name)
		if err != nil {
			return nil, err
		}
		c, err := seal.ParseCheckpoint(signed)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		fleet := c.Origin[strings.LastIndexByte(c.Origin, '/')+1:]
		found := false
		for _, f := range m.Fleets {
			found = found || f.Fleet == fleet
		}
		if !found {
			return nil, fmt.Errorf("%s is a checkpoint of %s, and the backup holds no fleet %s", name, c.Origin, fleet)
		}
		out[fleet] = append(out[fleet], signed)
	}
	return out, nil
}

// lacksFleets refuses a data directory that holds a fleet of the backup, and says
// which of them has more.
func (a *app) lacksFleets(from string, m manifest) error {
	for _, f := range m.Fleets {
		dir := fleetDir(a.data, f.Fleet)
		if _, err := os.Lstat(dir); errors.Is(err, fs.ErrNotExist) {
			continue
		} else if err != nil {
			return err
		}
		has := "how many events it acknowledged cannot be told any more"
		if head, err := pebblelog.ReadHead(dir); err == nil && head != nil {
			has = fmt.Sprintf("it acknowledged %d events", head.Size)
		}
		return tryNext(fmt.Errorf("%s holds fleet %s (%s), and nothing is written over it; the backup %s holds %d events of it", a.data, f.Fleet, has, from, f.Events),
			"if it is damaged, move it away and keep it, then: fleetledger restore "+shellWord(from)+" --data "+shellWord(a.data))
	}
	return nil
}

// copyBackup copies the files that the manifest lists to the new directory dir, and
// holds each to its sum.
func copyBackup(ctx context.Context, from, dir string, m manifest, note *progress) error {
	if err := os.Mkdir(dir, 0o700); err != nil {
		return err
	}
	var bytes int64
	for _, want := range m.Files {
		if err := ctx.Err(); err != nil {
			return err
		}
		name := filepath.FromSlash(want.Name)
		if !filepath.IsLocal(name) {
			return fmt.Errorf("the backup lists %q, which is no file of one", want.Name)
		}
		err := func() error {
			f, err := os.Open(filepath.Join(from, name))
			if err != nil {
				return err
			}
			defer f.Close()
			info, err := f.Stat()
			if err != nil {
				return err
			}
			sum, err := copyFile(io.LimitReader(f, want.Bytes+1), filepath.Join(dir, name), info.Mode().Perm(), func(n int64) { note.bytes(bytes + n) })
			if err == nil && sum != want.SHA256 {
				err = errors.New("it is not what was backed up: its SHA-256 is another")
			}
			return err
		}()
		if err != nil {
			err = fmt.Errorf("%s: %w; nothing was changed", filepath.Join(from, name), err)
			if errors.Is(err, syscall.ENOSPC) {
				return err // of the new copy
			}
			return tryNext(err, "restore another backup")
		}
		bytes += want.Bytes
	}
	return syncTree(dir)
}

// auditCopy audits the fleets of a copy, and holds each to its checkpoints.
func (a *app) auditCopy(ctx context.Context, dir string, m manifest, kept map[string][][]byte) (map[string]audit.Report, error) {
	reports := map[string]audit.Report{}
	for _, f := range m.Fleets {
		r, err := a.auditLog(ctx, dir, f.Fleet, &auditTerms{checkpoints: kept[f.Fleet]})
		if err != nil {
			return nil, fmt.Errorf("audit the copy of fleet %s: %w", f.Fleet, err)
		}
		if uint64(r.To) < f.Events {
			return nil, fmt.Errorf("the copy of fleet %s has %d events, of %d that the backup lists", f.Fleet, r.To, f.Events)
		}
		reports[f.Fleet] = r
	}
	return reports, nil
}

// place moves what was restored to where it belongs. A crash on the way leaves a
// directory without its format, which nothing opens; or, beside other fleets, some
// of the backup's whole.
func (a *app) place(part string, m manifest) error {
	if err := os.MkdirAll(filepath.Join(a.data, fleetsName), 0o755); err != nil {
		return err
	}
	for _, f := range m.Fleets {
		if err := os.Rename(fleetDir(part, f.Fleet), fleetDir(a.data, f.Fleet)); err != nil {
			return err
		}
		if f.Fleet != defaultFleet {
			continue // its root's token lies with it
		}
		err := os.Rename(rootTokenFile(part, f.Fleet), rootTokenFile(a.data, f.Fleet))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	if err := syncDirectory(filepath.Join(a.data, fleetsName)); err != nil {
		return err
	}
	if err := syncDirectory(a.data); err != nil {
		return err
	}
	if _, err := os.Lstat(filepath.Join(a.data, formatName)); err == nil {
		return nil
	}
	// Last of all: what has no format is no data directory yet.
	if err := os.Rename(filepath.Join(part, formatName), filepath.Join(a.data, formatName)); err != nil {
		return err
	}
	return syncDirectory(a.data)
}

// showCopy tells what a backup or a restore came to; findings make the exit code 1.
func (a *app) showCopy(cmd *cobra.Command, what, dir string, m manifest, reports map[string]audit.Report) error {
	type fleetCopy struct {
		Fleet  string       `json:"fleet"`
		Events int64        `json:"events"`
		Report audit.Report `json:"report"`
	}
	out := struct {
		Directory string      `json:"directory"`
		Bytes     int64       `json:"bytes"`
		Files     int         `json:"files"`
		Fleets    []fleetCopy `json:"fleets"`
	}{Directory: dir, Files: len(m.Files)}
	for _, f := range m.Files {
		out.Bytes += f.Bytes
	}
	ok := true
	for _, f := range m.Fleets {
		r := reports[f.Fleet]
		ok = ok && r.OK
		out.Fleets = append(out.Fleets, fleetCopy{f.Fleet, int64(r.To), r})
	}
	if a.json {
		if err := a.printValue(out); err != nil {
			return err
		}
	} else {
		p := printer{a.out}
		done := map[string]string{"backup": "backed up to", "restore": "restored to"}[what]
		if !ok {
			done = "audited in"
		}
		for _, f := range out.Fleets {
			p.f("fleet %s: %s %s %s, %s decided again, %s\n", f.Fleet, count(int(f.Events), "event"), done, dir,
				count(f.Report.DecisionsRederived, "decision"), count(len(f.Report.Findings), "finding"))
			for _, finding := range f.Report.Findings {
				p.f("  position %d: %s: %s\n", finding.Position, finding.Kind, finding.Detail)
			}
		}
		p.f("  %s, %s\n", count(out.Files, "file"), mib(out.Bytes))
	}
	if !ok {
		return errQuiet
	}
	if what == "restore" && !a.json {
		printer{a.err}.f("next: fleetledger serve --data %s\n", shellWord(a.data))
	}
	return nil
}

// mib is a size as people read it.
func mib(bytes int64) string { return fmt.Sprintf("%.1f MiB", float64(bytes)/(1<<20)) }
