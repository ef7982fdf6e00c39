-- The read model of one fleet. It is folded from the fleet's log and can be thrown
-- away: fleetledger rebuild makes it again. Times are RFC 3339 in UTC with
-- microseconds, so they sort as text. Lists are JSON: see json_each().

-- view has one row: how far the log is folded, and from which log.
CREATE TABLE view (
  fleet     TEXT    NOT NULL,
  version   INTEGER NOT NULL, -- of this schema and of what the fold makes of an event
  position  INTEGER NOT NULL, -- of the last event that is folded
  time      TEXT    NOT NULL, -- when that event was recorded
  first     TEXT    NOT NULL, -- hash of the log's first event
  last      TEXT    NOT NULL, -- hash of the last event that is folded
  complete  INTEGER NOT NULL, -- 1 once it had caught up with the log
  traces    INTEGER NOT NULL  -- 1: something erased may still lie in the log that SQLite keeps beside the file
);

-- parked are events that could not be folded. Everything else goes on.
CREATE TABLE parked (
  position  INTEGER PRIMARY KEY,
  type      TEXT    NOT NULL,
  stream    TEXT    NOT NULL,
  error     TEXT    NOT NULL
);

-- tasks are commands to be run on one or more machines.
CREATE TABLE tasks (
  task_id      TEXT    PRIMARY KEY,
  position     INTEGER NOT NULL,  -- of task.submitted
  submitted_by TEXT    NOT NULL,
  submitted_at TEXT    NOT NULL,
  mode         TEXT    NOT NULL,  -- single, replicate, split
  command      TEXT    NOT NULL,  -- argv as one line that a shell reads back
  argv         TEXT    NOT NULL,  -- JSON
  parts        TEXT,              -- JSON, one argv for each target, of a split task
  targets      TEXT    NOT NULL,  -- JSON, ids of machines
  cwd          TEXT,
  tags         TEXT    NOT NULL,  -- JSON
  status       TEXT    NOT NULL,  -- awaiting_approval, open, settled
  verdict      TEXT,              -- once settled
  reason       TEXT,
  opened       INTEGER,           -- position of task.opened
  opened_at    TEXT,
  settled      INTEGER,           -- position of task.settled
  settled_at   TEXT
) WITHOUT ROWID;
CREATE INDEX tasks_by_position ON tasks (position);

-- task_targets says which tasks have which machines as targets.
CREATE TABLE task_targets (
  machine   TEXT    NOT NULL,
  position  INTEGER NOT NULL,  -- tasks.position
  PRIMARY KEY (machine, position)
) WITHOUT ROWID;

-- attempts are the tries of a task's legs.
CREATE TABLE attempts (
  task_id          TEXT    NOT NULL,
  attempt          INTEGER NOT NULL,
  machine          TEXT    NOT NULL,
  claimed_at       TEXT    NOT NULL,
  lease_expires_at TEXT    NOT NULL,  -- when it was claimed; heartbeats are not recorded
  lapsed_at        TEXT,              -- when it was given up, not having been heard of
  reported_at      TEXT,
  late             INTEGER,           -- 1: reported after it had lapsed
  outcome          TEXT,              -- exited, timed_out, refused, not_started, cancelled
  exit_code        INTEGER,
  masked           INTEGER,
  elapsed_ms       INTEGER,
  run              INTEGER,           -- runs.position
  PRIMARY KEY (task_id, attempt)
) WITHOUT ROWID;

-- gates are decisions that stand for themselves: every "may I?", every gate of a
-- task's target, every command that was not allowed at once. A command allowed at
-- once has its decision in its own event.
CREATE TABLE gates (
  gate_id            TEXT    PRIMARY KEY,
  position           INTEGER NOT NULL,
  at                 TEXT    NOT NULL,
  actor              TEXT    NOT NULL,
  level              INTEGER NOT NULL,  -- the actor's effective level then
  action             TEXT    NOT NULL,
  machine            TEXT,              -- the target, of a task
  task_id            TEXT,
  verdict            TEXT    NOT NULL,  -- allow, needs_approval, deny
  rule_id            TEXT,              -- of the decisive rule: rules.rule_id
  reason_code        TEXT,              -- why not; NULL if allowed
  reason             TEXT,
  authority_revision INTEGER NOT NULL,
  asked              INTEGER NOT NULL,  -- 1: an explicit "may I?"
  command            TEXT,              -- JSON
  approval_id        TEXT               -- the approval opened for it
) WITHOUT ROWID;
CREATE INDEX gates_by_position ON gates (position);

-- approvals are requests to let one command of one actor pass.
CREATE TABLE approvals (
  approval_id    TEXT    PRIMARY KEY,
  position       INTEGER NOT NULL,  -- of approval.requested
  stream         TEXT    NOT NULL,
  task_id        TEXT,              -- the task that waits for it
  requested_by   TEXT    NOT NULL,
  requested_at   TEXT    NOT NULL,
  actions        TEXT    NOT NULL,  -- JSON
  level          INTEGER NOT NULL,  -- the requester's effective level then
  required_level INTEGER NOT NULL,
  scope          TEXT,
  why            TEXT,
  command        TEXT,              -- JSON
  expires_at     TEXT    NOT NULL,
  status         TEXT    NOT NULL,  -- pending, granted, refused, expired, withdrawn
  settled_by     TEXT,
  settled        INTEGER,           -- position of approval.settled
  settled_at     TEXT,
  reason         TEXT,              -- of whoever settled it
  spent_at       TEXT
) WITHOUT ROWID;
CREATE INDEX approvals_by_position ON approvals (position);

-- rules are conditions on actions, in the order of their position.
CREATE TABLE rules (
  rule_id               TEXT    PRIMARY KEY,
  position              INTEGER NOT NULL,
  action                TEXT    NOT NULL,  -- exact, or a prefix a.*
  min_level             INTEGER,           -- NULL, like any value but 0 to 100, is malformed and denies
  matching_exempt_level INTEGER,
  scope                 TEXT,
  why                   TEXT,
  written_by            TEXT    NOT NULL,
  written_at            TEXT    NOT NULL,
  retired_by            TEXT,
  retired_at            TEXT               -- NULL while it is in force
) WITHOUT ROWID;

-- actors are people, agents and machines. effective_level, in actor_levels, is what
-- gates go by.
CREATE TABLE actors (
  actor_id        TEXT    PRIMARY KEY,
  position        INTEGER NOT NULL,
  kind            TEXT    NOT NULL,  -- human, agent, machine
  authority_level INTEGER NOT NULL,  -- its own
  cap             INTEGER,           -- it never has more
  parent          TEXT,              -- the actor it is derived from
  scopes          TEXT    NOT NULL,  -- JSON
  suspended       INTEGER NOT NULL,
  registered_by   TEXT    NOT NULL,
  registered_at   TEXT    NOT NULL,
  changed_at      TEXT    NOT NULL
) WITHOUT ROWID;

-- actor_levels are the effective levels: the least of an actor's own level, its cap
-- and its parent's effective level; active is 0 if it or an ancestor is suspended.
CREATE VIEW actor_levels AS
WITH RECURSIVE chain (actor_id, effective_level, active) AS (
  SELECT actor_id, min(authority_level, ifnull(cap, 100)), NOT suspended FROM actors WHERE parent IS NULL
  UNION ALL
  SELECT a.actor_id, min(a.authority_level, ifnull(a.cap, 100), chain.effective_level), NOT a.suspended AND chain.active
  FROM actors a JOIN chain ON a.parent = chain.actor_id)
SELECT actor_id, effective_level, active FROM chain;

-- sections are the revisions of the sections of the collective memory.
CREATE TABLE sections (
  position    INTEGER PRIMARY KEY,
  slug        TEXT    NOT NULL,
  revision    INTEGER NOT NULL,
  by          TEXT    NOT NULL,
  at          TEXT    NOT NULL,
  retired     INTEGER NOT NULL,  -- 1: this change took the section out of the document
  heading     TEXT,
  text        TEXT,              -- Markdown
  measured_at TEXT,
  how         TEXT,
  evidence    TEXT               -- JSON, ids of records and tasks
);
CREATE INDEX sections_by_slug ON sections (slug, position);

-- runs are finished attempts: the memory of the machines. Tails of output stay in
-- the log, at the run's position. A query over HTTP is not given those that its asker,
-- or everybody, has forgotten, nor do they count in series, unless it asks for them.
CREATE TABLE runs (
  position      INTEGER PRIMARY KEY, -- of the event that told of it
  record_id     TEXT    NOT NULL,    -- that event's id
  series        INTEGER,             -- series.id: its command on its machine in its repository
  task_id       TEXT,
  attempt       INTEGER,             -- of the task, if the task asked for it
  machine       TEXT    NOT NULL,
  command       TEXT    NOT NULL,    -- argv as one line that a shell reads back; '' if it was erased
  argv          TEXT    NOT NULL,    -- JSON
  cwd           TEXT    NOT NULL,    -- as the machine wrote it
  cwd_key       TEXT    NOT NULL,    -- equal for D:\Docu2 and d:/docu2
  repo          TEXT    NOT NULL,    -- as the machine wrote it, '' for none
  repo_key      TEXT    NOT NULL,    -- equal for D:\Docu2 and d:/docu2
  commit_id     TEXT    NOT NULL,
  outcome       TEXT    NOT NULL,    -- exited, timed_out, refused, not_started, cancelled
  exit_code     INTEGER,
  masked        INTEGER NOT NULL,    -- 1: the command's shell form can hide an exit code
  result        TEXT    NOT NULL,    -- succeeded, failed, masked (exit 0 that may hide another)
  started_at    TEXT    NOT NULL,
  ended_at      TEXT    NOT NULL,
  elapsed_ms    INTEGER NOT NULL,
  late          INTEGER NOT NULL,    -- 1: reported after its lease had lapsed
  tags          TEXT    NOT NULL,    -- JSON
  imported_from TEXT,
  gate          TEXT,                -- what let a run begin that no task asked for: allowed, offline
  gate_id       TEXT,                -- the gate that allowed it: gates.gate_id
  failure       TEXT,                -- what went wrong, in one line that is equal for equal errors; NULL if it
                                     -- succeeded or its output does not tell
  failure_version INTEGER            -- of the way in which failure was made
);
CREATE INDEX runs_by_machine ON runs (machine, position);
CREATE INDEX runs_by_series ON runs (series, position) WHERE series IS NOT NULL;
CREATE INDEX runs_by_repo ON runs (repo_key, position) WHERE repo_key <> '';
CREATE INDEX runs_by_cwd ON runs (cwd_key, position) WHERE cwd_key <> '';
CREATE INDEX runs_by_failure ON runs (failure, position) WHERE failure IS NOT NULL;
CREATE INDEX runs_by_task ON runs (task_id, position) WHERE task_id IS NOT NULL;

-- conclusions are what readers said that results meant.
CREATE TABLE conclusions (
  position      INTEGER PRIMARY KEY,
  conclusion_id TEXT    NOT NULL,   -- the event's id
  stream        TEXT    NOT NULL,
  by            TEXT    NOT NULL,
  at            TEXT    NOT NULL,
  about_task    TEXT,               -- tasks.task_id
  about_record  TEXT,               -- runs.record_id
  about_run     INTEGER,            -- runs.position of that record
  subject       TEXT,               -- JSON: argv, exit_code and time of what it is about
  text          TEXT    NOT NULL,
  supersedes    TEXT                -- conclusion_id of an earlier one; both stay
);
CREATE INDEX conclusions_by_task ON conclusions (about_task, position) WHERE about_task IS NOT NULL;
CREATE INDEX conclusions_by_superseded ON conclusions (supersedes) WHERE supersedes IS NOT NULL;
CREATE INDEX conclusions_by_run ON conclusions (about_run, position) WHERE about_run IS NOT NULL;

-- series are all the runs of one command on one machine in one repository, counted.
CREATE TABLE series (
  id         INTEGER PRIMARY KEY,
  key        INTEGER NOT NULL,  -- hash of command, machine and repo_key
  command    TEXT    NOT NULL,
  machine    TEXT    NOT NULL,
  repo       TEXT    NOT NULL,
  repo_key   TEXT    NOT NULL,
  runs       INTEGER NOT NULL,
  succeeded  INTEGER NOT NULL,
  failed     INTEGER NOT NULL,
  masked     INTEGER NOT NULL,
  first_at   TEXT    NOT NULL,
  last_at    TEXT    NOT NULL,
  last_run   INTEGER NOT NULL,  -- runs.position
  tags       TEXT    NOT NULL,  -- JSON, of all its runs
  failure    TEXT    NOT NULL,  -- of the last run that has one, '' if none has
  seen       INTEGER NOT NULL   -- grows with last_at; tried has it under -seen
);
CREATE INDEX series_by_key ON series (key);
CREATE UNIQUE INDEX series_by_seen ON series (seen);

-- series_conclusions says which conclusions are about runs of a series.
CREATE TABLE series_conclusions (
  series    INTEGER NOT NULL,
  position  INTEGER NOT NULL,  -- conclusions.position
  PRIMARY KEY (series, position)
) WITHOUT ROWID;

-- forms are the ways in which a command may be asked for, by their hash.
CREATE TABLE forms (
  hash    INTEGER NOT NULL,
  series  INTEGER NOT NULL,
  PRIMARY KEY (hash, series)
) WITHOUT ROWID;

-- tried finds series by the words of their commands, tags, failures and conclusions,
-- by pairs of words beside each other, and by where they ran. Its rowid is -series.seen:
-- what ran last comes first. It says which series have them all, and nothing else; the
-- texts themselves say the rest.
CREATE VIRTUAL TABLE tried USING fts5(terms,
  content='', contentless_delete=1, detail=none, tokenize="ascii");
-- Much at a time is written together: fewer parts of the index, faster questions.
INSERT INTO tried (tried, rank) VALUES ('hashsize', 33554432);

-- consolidations are what somebody said that several runs amount to, or had views
-- leave out.
CREATE TABLE consolidations (
  position         INTEGER PRIMARY KEY,
  consolidation_id TEXT    NOT NULL,  -- the event's id
  stream           TEXT    NOT NULL,  -- of the machine of the first run cited
  by               TEXT    NOT NULL,
  at               TEXT    NOT NULL,
  text             TEXT    NOT NULL,
  records          TEXT    NOT NULL,  -- JSON, ids of the runs cited
  forgets          TEXT,              -- JSON, what views leave out by it
  recalls          TEXT               -- consolidation_id of one whose forgetting it ends
);
CREATE INDEX consolidations_by_stream ON consolidations (stream, position);

-- cited are the runs that consolidations rest on.
CREATE TABLE cited (
  consolidation INTEGER NOT NULL,     -- consolidations.position
  record_id     TEXT    NOT NULL,
  run           INTEGER NOT NULL,     -- runs.position
  series        INTEGER,              -- of that run: series.id
  PRIMARY KEY (consolidation, record_id)
) WITHOUT ROWID;
CREATE INDEX cited_by_run ON cited (run, consolidation);
CREATE INDEX cited_by_series ON cited (series, consolidation) WHERE series IS NOT NULL;

-- forgettings are what views leave out, unless they are asked for it: of the runs
-- before its position those cited, and those of the machine that match the rest.
CREATE TABLE forgettings (
  position  INTEGER PRIMARY KEY,      -- consolidations.position
  reader    TEXT    NOT NULL,         -- whose views; '' for everybody's
  cited     INTEGER NOT NULL,         -- 1: the runs cited
  machine   TEXT,
  form      INTEGER,                  -- forms.hash of a command; null for every command
  before    TEXT,                     -- when a run had ended; null for any time
  recalled  INTEGER                   -- position of the consolidation that ended it
);

-- blocks are claims of peers: up to seven fields of text, and what they stem from.
CREATE TABLE blocks (
  position      INTEGER PRIMARY KEY,
  hash          TEXT    NOT NULL,
  published_by  TEXT    NOT NULL,
  published_at  TEXT    NOT NULL,
  event_id      TEXT    NOT NULL,
  fields        TEXT    NOT NULL,     -- JSON, texts by the names of the fields
  parents       TEXT    NOT NULL,     -- JSON, hashes
  ancestors     TEXT    NOT NULL,     -- JSON, hashes: the parents and theirs
  origin        TEXT                  -- JSON, where an imported block came from
);
CREATE UNIQUE INDEX blocks_by_hash ON blocks (hash);
CREATE INDEX blocks_by_publisher ON blocks (published_by, position);

-- block_parents are the edges between blocks.
CREATE TABLE block_parents (
  parent    TEXT    NOT NULL,         -- blocks.hash
  position  INTEGER NOT NULL,         -- blocks.position of the child
  PRIMARY KEY (parent, position)
) WITHOUT ROWID;

-- acceptances are what receivers took of blocks.
CREATE TABLE acceptances (
  position      INTEGER PRIMARY KEY,
  acceptance_id TEXT    NOT NULL,     -- the event's id
  hash          TEXT    NOT NULL,     -- blocks.hash
  by            TEXT    NOT NULL,
  at            TEXT    NOT NULL,
  stored        TEXT,                 -- hash of what was taken; null for nothing
  fields        TEXT    NOT NULL,     -- JSON, those that were taken
  own_thought   INTEGER NOT NULL
);
CREATE INDEX acceptances_by_block ON acceptances (hash, position);
CREATE INDEX acceptances_by_receiver ON acceptances (by, position);
