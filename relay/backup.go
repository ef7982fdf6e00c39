package relay

import (
	"errors"
	"io"
	"net/http"
	"time"

	"fleetledger/events"
)

const tarType = "application/x-tar"

// getBackup streams a backup of the caller's fleet. It holds keys and tokens, so it
// is for root alone, whom no rule can shut out.
func (c *call) getBackup() error {
	if c.token.Actor != "root" {
		return &problem{status: http.StatusForbidden, code: "ROOT_ONLY",
			detail: "a backup holds the keys of the fleet: only root may have one", facts: facts{"actor": c.token.Actor}}
	}
	if c.cfg.Backup == nil {
		return notFound("BACKUP_NOT_KEPT", "this relay has no data directory to back up")
	}
	if c.streams.isDraining() {
		return errDraining
	}
	if c.r.Method == http.MethodHead {
		c.headers(tarType)
		return nil
	}
	w := &backupWriter{call: c, rc: http.NewResponseController(c.w)}
	err := c.cfg.Backup(c.ctx(), c.fleet, w)
	if err == nil || !c.wrote {
		return err
	}
	// Its reader has a stream without its end, and takes it for none.
	if c.ctx().Err() == nil && !errors.Is(err, events.ErrClosed) {
		c.cfg.Logger.Error("a backup broke off", "fleet", c.fleet, "error", err)
	}
	panic(http.ErrAbortHandler)
}

// backupWriter sends what it is given, to a reader that may take its time but not
// stop.
type backupWriter struct {
	*call
	rc *http.ResponseController
}

var _ io.Writer = (*backupWriter)(nil)

func (w *backupWriter) Write(p []byte) (int, error) {
	if !w.wrote {
		w.w.Header().Set("Connection", "close") // the deadlines for writing outlive the answer
		w.headers(tarType)
	}
	if err := w.rc.SetWriteDeadline(time.Now().Add(w.cfg.StreamPatience)); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return 0, errGone
	}
	return w.w.Write(p)
}
