-- Every attempt ever made; the only table here that nothing else holds.
CREATE TABLE reconciliation_history (
    id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    attempt TEXT NOT NULL UNIQUE,
    resource_id BIGINT NOT NULL,
    resource_uid TEXT NOT NULL,
    resource_name TEXT NOT NULL,
    resource_type TEXT NOT NULL,
    action_plugin TEXT NOT NULL,
    generation BIGINT NOT NULL,
    success BOOLEAN NOT NULL,
    phase TEXT NOT NULL,
    error_message TEXT,
    resources_created BIGINT NOT NULL,
    resources_updated BIGINT NOT NULL,
    resources_deleted BIGINT NOT NULL,
    plan_output TEXT,
    apply_output TEXT,
    trigger_reason TEXT NOT NULL,
    drift_detected BOOLEAN NOT NULL,
    duration_seconds DOUBLE PRECISION NOT NULL,
    reconcile_time TIMESTAMPTZ NOT NULL
);
CREATE INDEX history_by_resource ON reconciliation_history (resource_id, id);

-- What there is, for people who look here. The objects themselves are with the API server, and
-- changing these rows changes nothing.
CREATE TABLE resource_types (
    object_name TEXT PRIMARY KEY,
    id BIGINT,
    name TEXT NOT NULL,
    version TEXT NOT NULL,
    schema JSONB NOT NULL,
    description TEXT,
    status TEXT NOT NULL,
    metadata JSONB NOT NULL,
    created_at TIMESTAMPTZ,
    updated_at TIMESTAMPTZ NOT NULL DEFAULT now()
);
CREATE TABLE resources (
    namespace TEXT NOT NULL,
    object_name TEXT NOT NULL,
    id BIGINT,
    name TEXT NOT NULL,
    resource_type_name TEXT NOT NULL,
    resource_type_version TEXT NOT NULL,
    action_plugin TEXT NOT NULL,
    spec JSONB NOT NULL,
    metadata JSONB NOT NULL,
    outputs JSONB NOT NULL,
    status TEXT NOT NULL,
    status_message TEXT,
    generation BIGINT NOT NULL,
    observed_generation BIGINT NOT NULL,
    retry_count BIGINT NOT NULL,
    created_at TIMESTAMPTZ,
    updated_at TIMESTAMPTZ NOT NULL DEFAULT now(),
    last_reconcile_time TIMESTAMPTZ,
    next_reconcile_time TIMESTAMPTZ,
    attempt TEXT,
    attempt_phase TEXT,
    attempt_started_at TIMESTAMPTZ,
    PRIMARY KEY (namespace, object_name)
);

-- An attempt under way is the lock on its resource: nobody else acts until it has ended.
CREATE VIEW locks AS
    SELECT 'resource/' || id AS lock_name, attempt AS holder, attempt_phase AS phase,
        attempt_started_at AS acquired_at
    FROM resources WHERE attempt IS NOT NULL;
