# Sluice: build, tests, measurements. `make help` lists the targets.

GO      ?= go
BIN     := bin/sluice
FUZZTIME ?= 60s
# Before the first release: the date of the commit sorts.
VERSION ?= 0.0~$(shell git log -1 --format=%cd.%h --date=format:%Y%m%d 2>/dev/null || echo dev)
# Root can make what the tests need, so as root no test may be skipped.
REQUIRE := $(if $(filter 0,$(shell id -u)),1,)

.DEFAULT_GOAL := help
.PHONY: help deps build deb test kernels check integration vm fuzz bench demo clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

deps: ## install the Debian packages that tests and demo use (as root)
	@scripts/deps

build: ## build bin/sluice
	CGO_ENABLED=0 $(GO) build -o $(BIN) ./cmd/sluice

deb: ## build a Debian package in bin; VERSION=1.2.3
	@scripts/deb/build bin $(VERSION)

test: deps ## all tests; without root, those that need it are skipped
	SLUICE_REQUIRE=$(REQUIRE) $(GO) test -count=1 -timeout 20m ./...

integration: deps ## only the tests with real traffic through real kernels
	SLUICE_REQUIRE=$(REQUIRE) $(GO) test -count=1 -timeout 20m -v ./integration/...

kernels: deps ## the kernel tests in a guest of each kernel; prints what each takes; 15 minutes; SERIES=6.12 for one kernel
	SLUICE_REQUIRE=$(REQUIRE) $(GO) test -count=1 -timeout 60m -v ./integration/kernels -kernels $(if $(SERIES),-series $(SERIES))

vm: deps ## all tests between guests under QEMU: 6 minutes if these are emulated
	SLUICE_REQUIRE=$(REQUIRE) $(GO) test -count=1 -timeout 60m -v ./integration/guests -full

check: deps ## format, vet, staticcheck, tests under the race detector, every benchmark once
	@test -z "$$(gofmt -l .)" || { gofmt -l .; exit 1; }
	$(GO) vet ./...
	$(GO) tool staticcheck ./...
	$(GO) test -race -short -timeout 20m ./vnet/... ./offload/... ./dataplane/... ./tunio/... ./cmd/...
	$(GO) test -run '^$$' -bench . -benchtime 1x ./...

fuzz: ## run every fuzz target for FUZZTIME (60s each)
	@scripts/fuzz $(FUZZTIME)

bench: deps build ## the full measurement: 5 rounds of 3 s a case, 6 minutes
	$(BIN) bench

demo: deps build ## reproduce the mixed-capability regression, and compare Sluice with it
	$(BIN) bench --quick

clean: ## remove build output
	rm -rf bin
