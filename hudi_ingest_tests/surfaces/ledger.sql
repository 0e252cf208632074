CREATE TABLE ingest_attempts (
	transaction_id TEXT NOT NULL, 
	topic TEXT NOT NULL, 
	partition INTEGER NOT NULL, 
	attempt INTEGER NOT NULL, 
	state TEXT NOT NULL, 
	started_at DATETIME NOT NULL, 
	ended_at DATETIME, 
	report JSON, 
	error TEXT, 
	CONSTRAINT pk_ingest_attempts PRIMARY KEY (transaction_id, topic, partition, attempt), 
	CONSTRAINT fk_ingest_attempts_ingest_slices FOREIGN KEY(transaction_id, topic, partition) REFERENCES ingest_slices (transaction_id, topic, partition) ON DELETE CASCADE, 
	CONSTRAINT ck_ingest_attempts_attempt_from_zero CHECK (attempt >= 0), 
	CONSTRAINT ck_ingest_attempts_state_known CHECK (state IN ('running', 'done', 'failed')), 
	CONSTRAINT ck_ingest_attempts_ended_unless_running CHECK ((state = 'running') = (ended_at IS NULL))
);

CREATE TABLE ingest_coordinators (
	pipeline TEXT NOT NULL, 
	ticked_at DATETIME NOT NULL, 
	settings TEXT, 
	changed_at DATETIME, 
	CONSTRAINT pk_ingest_coordinators PRIMARY KEY (pipeline)
);

CREATE TABLE ingest_counters (
	base_path TEXT NOT NULL, 
	name TEXT NOT NULL, 
	value DOUBLE NOT NULL, 
	CONSTRAINT pk_ingest_counters PRIMARY KEY (base_path, name)
);

CREATE TABLE ingest_ledger_revision (
	version_num VARCHAR(32) NOT NULL, 
	CONSTRAINT ingest_ledger_revision_pkc PRIMARY KEY (version_num)
);

CREATE TABLE ingest_locks (
	name TEXT NOT NULL, 
	token TEXT NOT NULL, 
	owner TEXT NOT NULL, 
	holder TEXT NOT NULL, 
	unfenced BOOLEAN NOT NULL, 
	taken_at DOUBLE NOT NULL, 
	renewed_at DOUBLE NOT NULL, 
	CONSTRAINT pk_ingest_locks PRIMARY KEY (name)
);

CREATE TABLE ingest_pending_changes (
	base_path TEXT NOT NULL, 
	pipeline TEXT NOT NULL, 
	fingerprint TEXT NOT NULL, 
	origin TEXT NOT NULL, 
	changes JSON NOT NULL, 
	found_at DATETIME NOT NULL, 
	CONSTRAINT pk_ingest_pending_changes PRIMARY KEY (base_path)
);

CREATE TABLE ingest_requests (
	request_id TEXT NOT NULL, 
	pipeline TEXT NOT NULL, 
	base_path TEXT NOT NULL, 
	kind TEXT NOT NULL, 
	ranges JSON NOT NULL, 
	skip_covered BOOLEAN NOT NULL, 
	respect_deletes BOOLEAN NOT NULL, 
	state TEXT NOT NULL, 
	filed_at DATETIME NOT NULL, 
	worker TEXT, 
	ended_at DATETIME, 
	reason TEXT, 
	passed_over JSON NOT NULL, 
	CONSTRAINT pk_ingest_requests PRIMARY KEY (request_id), 
	CONSTRAINT ck_ingest_requests_state_known CHECK (state IN ('active', 'done', 'failed', 'cancelled')), 
	CONSTRAINT ck_ingest_requests_ended_unless_active CHECK ((state = 'active') = (ended_at IS NULL))
);

CREATE TABLE ingest_service_runs (
	base_path TEXT NOT NULL, 
	service TEXT NOT NULL, 
	pipeline TEXT NOT NULL, 
	began_at DATETIME NOT NULL, 
	ended_at DATETIME, 
	succeeded_at DATETIME, 
	seconds DOUBLE, 
	error TEXT, 
	due BIGINT, 
	done BIGINT, 
	CONSTRAINT pk_ingest_service_runs PRIMARY KEY (base_path, service)
);

CREATE TABLE ingest_slices (
	transaction_id TEXT NOT NULL, 
	topic TEXT NOT NULL, 
	partition INTEGER NOT NULL, 
	start_offset BIGINT NOT NULL, 
	end_offset BIGINT NOT NULL, 
	CONSTRAINT pk_ingest_slices PRIMARY KEY (transaction_id, topic, partition), 
	CONSTRAINT fk_ingest_slices_ingest_transactions FOREIGN KEY(transaction_id) REFERENCES ingest_transactions (transaction_id) ON DELETE CASCADE, 
	CONSTRAINT ck_ingest_slices_range_half_open CHECK (0 <= start_offset AND start_offset <= end_offset)
);

CREATE TABLE ingest_switches (
	pipeline TEXT NOT NULL, 
	is_on BOOLEAN NOT NULL, 
	CONSTRAINT pk_ingest_switches PRIMARY KEY (pipeline)
);

CREATE TABLE ingest_topics (
	template TEXT NOT NULL, 
	topic TEXT NOT NULL, 
	seen_at DATETIME NOT NULL, 
	at_start BOOLEAN NOT NULL, 
	CONSTRAINT pk_ingest_topics PRIMARY KEY (template, topic)
);

CREATE TABLE ingest_transactions (
	transaction_id TEXT NOT NULL, 
	pipeline TEXT NOT NULL, 
	base_path TEXT NOT NULL, 
	sequence BIGINT NOT NULL, 
	epoch BIGINT NOT NULL, 
	state TEXT NOT NULL, 
	owner TEXT NOT NULL, 
	instant TEXT, 
	began_at DATETIME NOT NULL, 
	deadline DATETIME NOT NULL, 
	ended_at DATETIME, 
	rows BIGINT, 
	files BIGINT, 
	size_bytes BIGINT, 
	reason TEXT, 
	resets JSON, 
	request_id TEXT, 
	CONSTRAINT pk_ingest_transactions PRIMARY KEY (transaction_id), 
	CONSTRAINT uq_ingest_transactions_base_path_epoch UNIQUE (base_path, epoch), 
	CONSTRAINT ck_ingest_transactions_state_known CHECK (state IN ('open', 'committed', 'aborted')), 
	CONSTRAINT ck_ingest_transactions_ended_unless_open CHECK ((state = 'open') = (ended_at IS NULL)), 
	CONSTRAINT ck_ingest_transactions_epoch_positive CHECK (epoch > 0)
);

CREATE INDEX ix_ingest_requests_filed ON ingest_requests (pipeline, filed_at);

CREATE INDEX ix_ingest_transactions_history ON ingest_transactions (pipeline, began_at);

CREATE INDEX ix_ingest_transactions_request ON ingest_transactions (request_id);

CREATE UNIQUE INDEX uq_ingest_transactions_one_open_a_table ON ingest_transactions (base_path) WHERE state = 'open';
