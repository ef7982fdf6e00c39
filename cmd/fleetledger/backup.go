package main

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/spf13/cobra"

	"fleetledger/agent"
	"fleetledger/commands"
	"fleetledger/events"
	"fleetledger/events/pebblelog"
)

// A backup is a directory with the layout of a data directory, and a list of its
// files with their sums. It holds what a relay needs to go on as the same one: the
// logs, the keys that sign them, the newest checkpoints, root's tokens and how far
// deliveries are. It lacks
// what can be made again.
const manifestName = "backup.json"

// manifest is that list. Whoever reads it holds the files to it.
type manifest struct {
	Format  int             `json:"format"`
	MadeAt  time.Time       `json:"made_at"`
	Program string          `json:"program"`
	Fleets  []manifestFleet `json:"fleets"`
	Files   []manifestFile  `json:"files"`
}

// manifestFleet says what the log of a fleet holds at least: all that was
// acknowledged when the backup was begun.
type manifestFleet struct {
	Fleet  string      `json:"fleet"`
	Events uint64      `json:"events"`
	Root   events.Hash `json:"root"`
}

type manifestFile struct {
	Name   string      `json:"name"`
	Bytes  int64       `json:"bytes"`
	SHA256 events.Hash `json:"sha256"`
}

const manifestFormat = 1

func (a *app) backupCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "backup DIR",
		Short: "Copy the ledger, also while it is served, and audit the copy",
		Long: strings.TrimSpace(`
Copy the ledger to a new directory, and audit the copy. It holds every event that was
acknowledged when the copy was begun; appends and reads go on meanwhile.

Of a data directory that no server has open, all fleets are copied. From a server,
the fleet of the token is, which must be root's: with --server, or when the data
directory is in use.

The copy is a data directory with a list of its files and their SHA-256. It holds
the keys that sign the log and root's token: guard it as you guard the original.
"fleetledger restore" checks it and puts it in place.`),
		Example: `  fleetledger backup /mnt/backup/2026-11-30
  fleetledger backup 2026-11-30 --server https://ledger.example.org --token-file root.token`,
		Args: cobra.ExactArgs(1),
		RunE: a.does(func(cmd *cobra.Command, args []string) error {
			return a.backup(cmd, args[0])
		}),
	}
}

func (a *app) backup(cmd *cobra.Command, target string) error {
	if target == "" {
		return misused("the name of the directory is empty")
	}
	target = filepath.Clean(target) // a slash at its end would make what is copied part of it
	if _, err := os.Lstat(target); err == nil {
		return tryNext(fmt.Errorf("%s exists, and a backup writes over nothing", target), "name a directory that is not there yet")
	} else if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	part := target + ".part"
	if _, err := os.Lstat(part); err == nil {
		return tryNext(fmt.Errorf("%s exists: another backup is being made there, or one was cut off", part), "if none is running, remove it: rm -r "+shellWord(part))
	}
	source, err := a.backupSource(cmd)
	if err != nil {
		return err
	}
	note := a.newProgress("copied")
	m, err := receiveBackup(source, part, note)
	note.end()
	if err = errors.Join(err, source.Close()); err != nil {
		return errors.Join(err, os.RemoveAll(part))
	}
	reports, err := a.auditCopy(cmd.Context(), part, m, nil)
	if err != nil {
		return errors.Join(err, os.RemoveAll(part))
	}
	if err := os.Rename(part, target); err != nil {
		return err
	}
	if err := syncDirectory(filepath.Dir(target)); err != nil {
		return err
	}
	return a.showCopy(cmd, "backup", target, m, reports)
}

// backupSource is a stream of the files to copy: from the data directory, if it is
// there and not in use, or from the server.
func (a *app) backupSource(cmd *cobra.Command) (io.ReadCloser, error) {
	if a.server == "" {
		switch lock, err := lockExisting(a.data); {
		case err == nil:
			return a.readOffline(cmd.Context(), lock)
		case errors.Is(err, errNoData) && !cmd.Flags().Changed("data"), errors.Is(err, events.ErrLocked):
			// A server may have it.
		default:
			return nil, err
		}
	}
	c, err := a.client(cmd)
	if err != nil {
		return nil, err
	}
	r, err := c.Download(cmd.Context(), agent.Path("v1", "backup"))
	if err != nil {
		return nil, a.unanswered(err)
	}
	return r, nil
}

var errNoData = errors.New("no data")

// lockExisting locks a data directory that there is.
func lockExisting(dir string) (io.Closer, error) {
	isNew, err := checkData(dir)
	if err != nil {
		return nil, err
	}
	if isNew {
		return nil, tryNext(fmt.Errorf("%w in %s", errNoData, dir), "name the data directory with --data, or a server with --server")
	}
	return pebblelog.LockDirectory(dir)
}

// readOffline is the stream of a directory that is locked; closing it closes lock.
func (a *app) readOffline(ctx context.Context, lock io.Closer) (io.ReadCloser, error) {
	names, err := fleetNames(a.data)
	if err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	logs := map[string]*pebblelog.Log{}
	closeAll := func() error {
		var errs error
		for _, l := range logs {
			errs = errors.Join(errs, l.Close())
		}
		return errors.Join(errs, lock.Close())
	}
	for _, name := range names {
		l, err := openDirectory(fleetDir(a.data, name), pebblelog.Options{Fleet: name, Logger: a.newLogger(slog.LevelWarn), Now: a.now})
		if err != nil {
			return nil, errors.Join(explainOpen(err, a.data, name), closeAll())
		}
		logs[name] = l
	}
	r, w := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		w.CloseWithError(sendBackup(ctx, w, a.data, logs, a.now()))
		ended <- closeAll()
	}()
	return &pipe{r, ended}, nil
}

// pipe is a stream whose source ends with it.
type pipe struct {
	*io.PipeReader
	ended <-chan error
}

func (p *pipe) Close() error { return errors.Join(p.PipeReader.Close(), <-p.ended) }

// backupOf is how a server makes a backup of one of its fleets.
func (a *app) backupOf(fleets map[string]*commands.Ledger) func(context.Context, string, io.Writer) error {
	return func(ctx context.Context, fleet string, w io.Writer) error {
		log, ok := directoryLog(fleets[fleet].Log())
		if !ok {
			return fmt.Errorf("the log of fleet %s lies in no directory", fleet)
		}
		err := sendBackup(ctx, w, a.data, map[string]*pebblelog.Log{fleet: log}, a.now())
		if errors.Is(err, pebblelog.ErrBackingUp) {
			return &commands.Refusal{Class: commands.Conflict, Code: "BACKUP_RUNNING", Detail: "another backup of this fleet is being made; wait until it is done"}
		}
		return err
	}
}

// sendBackup writes the files of a backup of these fleets to w, as a tar archive
// that ends with the manifest.
func sendBackup(ctx context.Context, w io.Writer, dir string, logs map[string]*pebblelog.Log, now time.Time) error {
	s := backupSender{tar: tar.NewWriter(w), m: manifest{Format: manifestFormat, MadeAt: now.UTC(), Program: version()}}
	for _, fleet := range slices.Sorted(maps.Keys(logs)) {
		// Read before the log: a checkpoint never covers more than the copy then has.
		kept, err := keptFiles(dir, fleet)
		if err != nil {
			return err
		}
		err = logs[fleet].Backup(ctx, func(b pebblelog.Backup) error {
			// Nothing is sent before there is a copy: a server tells who asked why there
			// is none.
			if len(s.m.Fleets) == 0 {
				kept = append([]keptFile{{formatName, 0o644, []byte(formatPrefix + strconv.Itoa(formatVersion) + "\n")}}, kept...)
			}
			for _, f := range kept {
				if err := s.send(f.name, f.mode, int64(len(f.content)), bytes.NewReader(f.content)); err != nil {
					return err
				}
			}
			s.m.Fleets = append(s.m.Fleets, manifestFleet{fleet, b.Head.Size, b.Head.Root})
			for _, f := range b.Files {
				if err := ctx.Err(); err != nil {
					return err
				}
				r, err := f.Open()
				if err != nil {
					return err
				}
				err = s.send(fleetsName+"/"+fleet+"/"+f.Name, 0o644, f.Size, r)
				if err := errors.Join(err, r.Close()); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return fmt.Errorf("back up fleet %s: %w", fleet, err)
		}
	}
	text, err := json.Marshal(s.m)
	if err != nil {
		return err
	}
	if err := s.send(manifestName, 0o644, int64(len(text)), bytes.NewReader(text)); err != nil {
		return err
	}
	return s.tar.Close()
}

// keptFile is a small file that a backup has beside the log. Its name is below the data
// directory, with slashes.
type keptFile struct {
	name    string
	mode    fs.FileMode
	content []byte
}

// keptFiles are those of a fleet, as far as they are there.
func keptFiles(dir, fleet string) (kept []keptFile, err error) {
	// How far deliveries are, too: after a restore they go on from there. Glob fails
	// on a bad pattern only.
	deliveries, _ := filepath.Glob(filepath.Join(fleetDir(dir, fleet), subscriptionsName, "*.[jk]*"))
	for _, path := range append([]string{rootTokenFile(dir, fleet), keyFile(dir, fleet), checkpointFile(dir, fleet)}, deliveries...) {
		f, err := readKept(dir, path)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		kept = append(kept, f)
	}
	return kept, nil
}

func readKept(dir, path string) (f keptFile, err error) {
	if f.content, err = os.ReadFile(path); err != nil {
		return f, err
	}
	info, err := os.Stat(path)
	if err != nil {
		return f, err
	}
	name, err := filepath.Rel(dir, path)
	f.name, f.mode = filepath.ToSlash(name), info.Mode().Perm()
	return f, err
}

// backupSender writes the archive and notes what is in it.
type backupSender struct {
	tar *tar.Writer
	m   manifest
}

func (s *backupSender) send(name string, mode fs.FileMode, size int64, r io.Reader) error {
	if err := s.tar.WriteHeader(&tar.Header{Name: name, Mode: int64(mode), Size: size, ModTime: s.m.MadeAt, Format: tar.FormatPAX}); err != nil {
		return err
	}
	sum := sha256.New()
	if n, err := io.Copy(io.MultiWriter(s.tar, sum), r); err != nil || n != size {
		return fmt.Errorf("copy %s: %d of %d bytes: %w", name, n, size, errors.Join(err, io.ErrUnexpectedEOF))
	}
	s.m.Files = append(s.m.Files, manifestFile{name, size, events.Hash(sum.Sum(nil))})
	return nil
}

// receiveBackup writes the files of a backup's stream to the new directory dir. It
// fails unless they are exactly those that the manifest lists.
func receiveBackup(r io.Reader, dir string, note *progress) (manifest, error) {
	var m manifest
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return m, err
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		return m, err
	}
	var got []manifestFile
	var bytes int64
	for archive := tar.NewReader(r); ; {
		h, err := archive.Next()
		if err != nil {
			return m, fmt.Errorf("the backup broke off: %w", unexpected(err))
		}
		if h.Typeflag != tar.TypeReg || !filepath.IsLocal(filepath.FromSlash(h.Name)) {
			return m, fmt.Errorf("the backup holds %q, which is no file of one", h.Name)
		}
		path := filepath.Join(dir, filepath.FromSlash(h.Name))
		sum, err := copyFile(archive, path, h.FileInfo().Mode().Perm(), func(n int64) { note.bytes(bytes + n) })
		if err != nil {
			return m, err
		}
		bytes += h.Size
		if h.Name == manifestName {
			if m, err = readManifest(path); err != nil {
				return m, err
			}
			break
		}
		got = append(got, manifestFile{h.Name, h.Size, sum})
	}
	if !slices.Equal(got, m.Files) {
		return m, errors.New("the backup's files are not those that its list names: make it again")
	}
	return m, syncTree(dir)
}

// unexpected is err, for a stream that may not end yet.
func unexpected(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// copyFile writes r to the new file path, on disk when it returns, and returns its
// sum.
func copyFile(r io.Reader, path string, mode fs.FileMode, told func(bytes int64)) (events.Hash, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return events.Hash{}, err
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return events.Hash{}, err
	}
	sum := sha256.New()
	_, err = io.Copy(io.MultiWriter(f, sum, &counter{told: told}), r)
	if err == nil {
		err = f.Sync()
	}
	return events.Hash(sum.Sum(nil)), errors.Join(err, f.Close())
}

// counter tells how many bytes passed.
type counter struct {
	n    int64
	told func(int64)
}

func (c *counter) Write(p []byte) (int, error) {
	c.n += int64(len(p))
	c.told(c.n)
	return len(p), nil
}

func readManifest(path string) (manifest, error) {
	var m manifest
	text, err := os.ReadFile(path)
	if err != nil {
		return m, err
	}
	if err := json.Unmarshal(text, &m); err != nil {
		return m, fmt.Errorf("%s cannot be read: %w", path, err)
	}
	if m.Format < 1 || m.Format > manifestFormat {
		return m, tryNext(fmt.Errorf("%s is a backup of format %d, this program reads up to %d", filepath.Dir(path), m.Format, manifestFormat), "use the newer program that made it")
	}
	if len(m.Fleets) == 0 {
		return m, fmt.Errorf("%s names no fleet", path)
	}
	fleets := map[string]bool{}
	for _, f := range m.Fleets {
		if !events.ValidID(f.Fleet) || fleets[f.Fleet] {
			return m, fmt.Errorf("%s names %q, which is no fleet, or is named twice", path, f.Fleet)
		}
		fleets[f.Fleet] = true
	}
	names := map[string]bool{}
	for _, f := range m.Files {
		if !ofBackup(f.Name, fleets) || names[f.Name] {
			return m, fmt.Errorf("%s lists %q, which is no file of a backup, or is listed twice", path, f.Name)
		}
		names[f.Name] = true
	}
	if !names[formatName] {
		return m, fmt.Errorf("%s does not list %q: it is not the list of a whole backup", path, formatName)
	}
	return m, nil
}

// ofBackup reports whether a backup of these fleets may have a file of this name. A
// relay believes what it finds in its directory: a view and snapshots, which would go
// unaudited, are not taken from a backup.
func ofBackup(name string, fleets map[string]bool) bool {
	if name == formatName || name == rootTokenName {
		return true
	}
	parts := strings.Split(name, "/")
	if !filepath.IsLocal(filepath.FromSlash(name)) || len(parts) < 3 || len(parts) > 4 || parts[0] != fleetsName || !fleets[parts[1]] {
		return false
	}
	within, last := parts[2], parts[len(parts)-1]
	if len(parts) == 3 {
		return within == rootTokenName || within == keyName || within == checkpointName || pebblelog.BackupHas(within)
	}
	if last == "" || last == "." || last == ".." {
		return false
	}
	return within == subscriptionsName || pebblelog.BackupHas(within+"/"+last)
}

// syncTree makes the names of everything under dir durable.
func syncTree(dir string) error {
	return filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return err
		}
		return syncDirectory(path)
	})
}
