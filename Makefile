# Every target is what CI and the documentation call; `make help` lists them.
FUZZTIME ?= 60s
KERNELS ?= 6.1,6.12
# Kernels that CI has no time for. More can be given by the path of a bzImage or of a Debian package with one.
NIGHTLY_KERNELS ?= newest
# Live tests of waits, of CPU profiles and of events; not one that allocates for an hour there.
KERNELS_LIVE ?= -run '^Test(Record|Report$$|ServeWaits)' -skip '^TestRecordWindowsOfEvents$$'
DEMO_OUT ?= demo.pb.gz
MISSPELL := github.com/client9/misspell/cmd/misspell@v0.3.4
STATICCHECK := honnef.co/go/tools/cmd/staticcheck@v0.8.2
ERRCHECK := github.com/kisielk/errcheck@v1.30.0
SUDO := $(if $(filter-out 0,$(shell id -u)),sudo)
# Live tests need root. Only they get it, not the compiler.
AS_ROOT := $(if $(SUDO),-exec 'sudo -H env CI=$(CI) PATH=$(PATH)')
# Tests in those packages that need the kernel or a guest; `make test` runs them, without the race detector.
LIVE := ^Test(Kernel|Live|Listen|Engine|Known|Inlined|Churn|Codelist|Perfmap|Compilation)
# Packages that have locks or atomics, and so goroutines.
# The tests of agent/view/program limit the memory of a process that would be under the detector as well.
RACY = $$(grep -rl --include=*.go --exclude=*_test.go '"sync' cct elffile symbolize vmruntime agent | xargs dirname | sort -u | grep -vx agent/view/program | sed 's,^,./,')
# Those that take longest come first, so that none of them is left at the end. More packages at a time than CPUs would end sooner, but
# guests that are timed would wait for a CPU.
# `lint` has vetted them.
ALL := -count=1 -vet=off $(AS_ROOT) ./tests ./tests/accuracy ./agent/collect/timing/hotspot ./tests/... ./vmruntime/... ./bpf ./...

.PHONY: help build generate reference man web check-web check-generate unit test lint lint-all race cross fuzz fuzz-short kernels kernels-live accuracy jdks bench paired journeys faults nightly busy demo deps clean

##@ Build

help: ## list the targets
	@awk -F ':.*## ' '/^##@ /{printf "%s%s\n", n++ ? "\n" : "", substr($$0, 5)} /^[a-z-]+:.*## /{printf "  %-15s %s\n", $$1, $$2}' Makefile

# -buildvcs=auto, so that `version` names the commit although GOFLAGS may say otherwise.
build: ## bin/vmprof-agent; needs Go and nothing else
	CGO_ENABLED=0 go build -trimpath -buildvcs=auto -o bin/vmprof-agent ./cmd/vmprof-agent

generate: ## BPF objects and their Go types; needs clang-19 and libbpf-dev
	@scripts/deps generate
	go generate ./...

reference: ## docs/reference/flags.md and metrics.md, from the code; tests fail when they are out of date
	go test ./cmd/vmprof-agent -run TestFlagsReference -update
	go test ./agent/view/sink/prom -run TestDocs -update

man: build ## bin/vmprof-agent.1, the manual page; completions of shells: bin/vmprof-agent completion bash
	bin/vmprof-agent man >bin/vmprof-agent.1

web: ## the pages (web/dist) from their sources; needs node and npm
	@scripts/deps web
	cd web && npm ci --ignore-scripts --no-audit --no-fund --loglevel=error && node build.js

check-web: ## the committed pages are what the sources give, and their data model computes what it should
	before=$$(sha256sum web/dist/*) && $(MAKE) web && echo "$$before" | sha256sum --quiet --check
	cd web && node --test

check-generate: ## what is generated is what the sources say
	before=$$(sha256sum bpf/*_bpfel* tests/exactcalls/*_bpfel*) && $(MAKE) generate && echo "$$before" | sha256sum --quiet --check

##@ Test

# Go remembers which packages have passed: those that a change cannot reach are not tested again.
unit: ## pure tests of what changed since the last time, without privileges and guests
	go test -vet=off -short -skip '$(LIVE)|^TestProbe' $$(go list ./... | grep -v /tests)

# Also in a clone that belongs to somebody else.
test: export GOFLAGS += -buildvcs=false
# As the agent is built: what is compiled for it serves the tests as well. (A comment behind the value would make a blank part of it.)
test: export CGO_ENABLED = 0
test: deps lint check-generate check-web cross race fuzz-short kernels ## everything; installs what is missing
	go test -timeout 30m $(ALL)

lint: ## gofmt, go vet, staticcheck (mistakes, unused code), misspell; imports are checked by imports_test.go
	@test -z "$$(gofmt -l . | tee /dev/stderr)"
	go vet ./...
	go run $(STATICCHECK) -checks 'SA*,U1000' ./...
	git ls-files '*.go' '*.md' '*.c' '*.h' | xargs go run $(MISSPELL) -error -i recrod,rela,extint

# Not every finding is a mistake: many errors of Close and Fprint are ignored on purpose.
lint-all: lint ## all of staticcheck, and errcheck: findings to read, which fail nothing
	-go run $(STATICCHECK) ./...
	-go run $(ERRCHECK) -ignoretests ./...

# What takes long and has one thread is skipped there, and runs later.
race: ## the packages with goroutines, without their kernel side, under the race detector
	CGO_ENABLED=1 go test -vet=off -race -short -skip '$(LIVE)' $(RACY)

cross: ## the agent builds for arm64
	GOARCH=arm64 CGO_ENABLED=0 go build -o /dev/null ./cmd/vmprof-agent && GOARCH=arm64 go vet ./...

fuzz: ## every fuzz target for FUZZTIME (60s)
	scripts/fuzz $(FUZZTIME)

fuzz-short: ## as many fuzz targets as fit into 45 s, 3 s each
	scripts/fuzz 3s 45

kernels: ## boot KERNELS (6.1,6.12) in an emulator and run the kernel tests there, and a live one
	@scripts/deps kernels demo
	go run ./tests/kernels -kernels $(KERNELS)
	go run ./tests/kernels -kernels $(KERNELS) -jdk oldest -run '^TestRecordOffCPU$$' ./tests

kernels-live: ## the live tests there that need a JVM and no compiler: half an hour
	@scripts/deps kernels demo
	go run ./tests/kernels -kernels $(KERNELS) -jdk oldest -timeout 2h $(KERNELS_LIVE) ./tests

nightly: ## what CI has no time for: NIGHTLY_KERNELS (newest), then the fault matrix in its full form
	$(MAKE) kernels KERNELS=$(NIGHTLY_KERNELS)
	$(MAKE) faults

busy: ## all tests beside four busy loops: none may depend on how busy the machine is
	@scripts/deps test busy
	stress-ng --quiet --cpu 4 & load=$$!; trap 'kill $$load' EXIT; go test -timeout 60m $(ALL)

##@ Measure: tables in docs/measurements

accuracy: ## profiles of programs with known truth
	@scripts/deps test crosscheck native
	go run ./tests/accuracy
	go run ./tests/crosscheck
	go run ./tests/native
	go run ./tests/audit
	go run ./tests/paced/measure
	go run ./tests/llvm
	go run ./tests/gopgo

jdks: ## every JDK in Debian unstable, in every setup (docs/reference/jdks.md): about an hour, 500 MB to fetch
	@scripts/deps test
	go run ./tests/jdks

bench: ## cost of the agent beside perf record
	@scripts/deps test
	go run ./tests/bench

paired: ## what the agent uses beside another one at the same time: make paired OTHER=path/of/vmprof-agent
	@scripts/deps test
	go run ./tests/bench -parts paired -against "$(OTHER)"

journeys: ## transcripts and pictures in docs/tasks and the README, from real runs
	@scripts/deps test
	go test -count=1 $(AS_ROOT) ./tests/journeys -update

faults: ## the fault matrix in its full form (docs/reliability.md): about an hour
	@scripts/deps test
	go test -count=1 -timeout 3h $(AS_ROOT) ./tests/faults -long

##@ Try it, tidy up

demo: build ## profile a small Java program for 10 s
	@scripts/deps demo && javac -d bin/demo tests/guests/java/Demo.java
	$(SUDO) bin/vmprof-agent record -o $(DEMO_OUT) -- java -cp bin/demo Demo 10
	@echo "profile: $(abspath $(DEMO_OUT)), for example: go tool pprof -http=: $(DEMO_OUT)"

deps: ## install the Debian packages that the other targets need
	@scripts/deps demo generate kernels web test

clean: ## remove what was built
	rm -rf bin demo.pb.gz
