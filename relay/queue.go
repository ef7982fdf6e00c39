package relay

import (
	"fleetledger/commands"
	"fleetledger/events"
)

// followApprovals follows the queue: what is pending now, then each approval as
// it is asked for and as it ends, however it does.
func (c *call) followApprovals(last events.Position) (func(*stream) error, error) {
	after, err := c.resumed(last)
	return func(st *stream) error {
		if after < last {
			st.forget()
		}
		if after == 0 {
			head := st.ledger.State().Position()
			for _, a := range st.ledger.State().PendingApprovals() {
				if a.Position > head {
					break // comes with what follows
				}
				if err := st.approvalEvent(a.Position, "requested", a.ApprovalID); err != nil {
					return err
				}
			}
			if err := st.flush(); err != nil {
				return err
			}
			after = head
		}
		return st.queue(after)
	}, err
}

// queue sends what happens to approvals after a position. The log is the source:
// a slow reader misses nothing.
func (st *stream) queue(after events.Position) error {
	log := st.ledger.Log()
	for {
		scanned := 0
		for r, err := range log.ReadAll(st.ends, after) {
			if err != nil {
				return err
			}
			after = r.Header.Position
			switch r.Header.Type {
			case events.ApprovalRequested{}.Kind():
				// Its id is that of its event.
				err = st.approvalEvent(after, "requested", r.Header.ID)
			case events.ApprovalSettled{}.Kind():
				var e events.ApprovalSettled
				if e, err = events.DecodeAs[events.ApprovalSettled](r); err == nil {
					err = st.approvalEvent(after, string(e.Outcome), e.ApprovalID)
				}
			}
			if err != nil {
				return err
			}
			if scanned++; scanned == maxScan || len(st.buf) > streamPageBytes {
				break
			}
		}
		if len(st.buf) > 0 {
			if err := st.flush(); err != nil {
				return err
			}
		}
		if scanned > 0 {
			if err := st.looked(); err != nil {
				return err
			}
			continue
		}
		if err := st.await(after + 1); err != nil {
			return err
		}
	}
}

// approvalEvent adds an approval, as it stands now, to what is to be sent.
func (st *stream) approvalEvent(at events.Position, name, id string) error {
	p := commands.NewStandpoint(st.ledger.State().Authority(), st.ledger.State().Settings())
	st.asOf = st.ledger.State().Position()
	item, err := st.approval(id, p)
	if err != nil {
		return err
	}
	return st.event(at, name, item)
}
