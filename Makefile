# Everything a developer does, by name. `make` alone lists it.

CARGO    ?= cargo
KUBECTL  ?= kubectl
# Where `make up` keeps its state.
DATA_DIR ?= .steersman
# The image that `make docker-build` makes and `make deploy` expects.
IMG      ?= steersman.io/steer:latest
# What `make deploy` and `make undeploy` are about.
OPERATORS ?= webapp observatory infra elasti
# A black-box suite of what Kubernetes' clients rely on; used where it is there.
COMPAT_SUITE ?= ../shared/compat
# What the suite is not asked for: what needs roles and policies, which are not enforced yet, and tokens that
# nobody asked for in the pods of `steer up`.
COMPAT_SKIP ?= ^(rbac|review|policy)/|^authn/(token-use|token-revoked|token-secret-bound|impersonation)|^kubectl/create-rbac|^builtin/pod-service-account

# How long `make fuzz` goes on.
FUZZ_SECONDS ?= 600

STEER := target/release/steer
# With a Go toolchain every real part can be had, so nothing may be skipped in CI.
REQUIRED_PARTS := $(if $(shell command -v go 2>/dev/null),all,)

.DEFAULT_GOAL := help
.PHONY: crash-matrix help build up run install uninstall deploy undeploy docker-build test e2e compat soak bench fuzz torture fmt vet lint parts ci

help: ## List the targets
	@echo "Usage: make TARGET"
	@awk 'BEGIN { FS = ":.*## " } /^[a-z0-9-]+:.*## / { printf "  %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

# --- Use

build: ## Build target/release/steer
	$(CARGO) build --release --package steersman-steer --bin steer

up: build ## Start a control plane, a node and all operators on this machine
	@exec $(STEER) up --data-dir $(DATA_DIR)

run: build ## Run the operators against the cluster of the current kubeconfig
	@exec $(STEER) run all

install: ## Install the CRDs into the cluster of the current kubeconfig
	@if command -v $(KUBECTL) >/dev/null; then \
	  $(KUBECTL) apply -f config/crd/bases; \
	else \
	  $(MAKE) --no-print-directory build && $(STEER) apply -f config/crd/bases; \
	fi

uninstall: ## Delete the CRDs, and with them every custom resource
	@if command -v $(KUBECTL) >/dev/null; then \
	  $(KUBECTL) delete --ignore-not-found -f config/crd/bases; \
	else \
	  $(MAKE) --no-print-directory build && $(STEER) delete --ignore-not-found -f config/crd/bases; \
	fi

deploy: ## Install OPERATORS, run from IMG, into the cluster of the current kubeconfig
	@config/deploy.sh '$(KUBECTL)' '$(IMG)' $(OPERATORS)

undeploy: ## Delete OPERATORS from the cluster; definitions and custom resources stay
	@config/undeploy.sh '$(KUBECTL)' $(OPERATORS)

docker-build: ## Build the container image IMG with docker or podman
	@for engine in docker podman; do \
	  if command -v $$engine >/dev/null && $$engine info >/dev/null 2>&1; then \
	    set -x; exec $$engine build --tag $(IMG) .; \
	  fi; \
	done; \
	echo "make docker-build needs a running container engine; neither docker nor podman answers on this machine" >&2; \
	exit 1

# --- Develop

test: ## Run all tests; those skipped for lack of a real part are listed at the end
	@CARGO="$(CARGO)" tests/run.sh --workspace

e2e: ## Run only the tests of the whole system, with every kubectl found
	@CARGO="$(CARGO)" tests/run.sh --package steersman-steer --test '*'

crash-matrix: ## Kill the operator at every request of every action plugin and at every write, and count what happened
	STEER_CRASH_MATRIX=all $(CARGO) test --package steersman-steer --test crash_matrix -- --nocapture

compat: build ## Run the compatibility suite against `steer up`, where the suite is there
	@tests/compat.sh $(STEER) '$(COMPAT_SUITE)' '$(COMPAT_SKIP)'

soak: ## Ten minutes of injected faults with a thousand objects, with another seed each round
	SOAK_SECONDS=600 $(CARGO) test --package steersman-test --test soak -- --nocapture

fuzz: ## Send hostile bytes to every decoder for FUZZ_SECONDS, with one seed after the other
	FUZZ_SECONDS=$(FUZZ_SECONDS) FUZZ_ITERATIONS=2000 $(CARGO) test --release --package steersman-apiserver --test fuzz -- --nocapture

torture: ## Put services to sleep and wake them ten thousand times under load, killing resolvers
	TORTURE_SECONDS=420 TORTURE_SERVICES=60 $(CARGO) test --release --package steersman-resolver --test torture
	TORTURE_ROUNDS=20 $(CARGO) test --package steersman-steer --test elasti -- what_config_installs

bench: ## Print figures, beside those of the real control plane where it can be had
	$(CARGO) bench --package steersman --package steersman-test --package steersman-steer --bench '*'
	$(CARGO) bench --profile dist --package steersman-resolver --bench '*'

fmt: ## Format the code
	$(CARGO) fmt --all

vet: ## Let clippy look at the code
	$(CARGO) clippy --workspace --all-targets

lint: ## Check format, clippy, docs, generated files and licences, all without warnings
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets -- --deny warnings
	RUSTDOCFLAGS='--deny warnings' $(CARGO) doc --workspace --no-deps
	$(CARGO) xtask generate --check
	@if $(CARGO) deny --version >/dev/null 2>&1; then \
	  $(CARGO) deny check; \
	else \
	  echo "cargo-deny is not installed: licences and advisories were not checked (cargo install cargo-deny)"; \
	fi

parts: ## Get the real parts that tests run against
	$(CARGO) xtask parts install

# `test` holds the whole-system tests of `e2e` already. A part that cannot be installed fails
# the tests that need it, with a message that says so, and no others.
ci: ## Everything a change must pass
	-$(MAKE) --no-print-directory parts
	$(MAKE) --no-print-directory lint
	STEER_REQUIRE_PARTS=$(REQUIRED_PARTS) $(MAKE) --no-print-directory test
	$(MAKE) --no-print-directory compat
