// Package serve has the verb serve: it profiles until it is stopped, and hands each window to
// metrics, pages, the history, rules and a program of the user.
package serve

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent"
	"github.com/vmprof-agent/vmprof-agent/agent/collect/engines"
	"github.com/vmprof-agent/vmprof-agent/agent/host/proc"
	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/agent/probe/attach"
	"github.com/vmprof-agent/vmprof-agent/agent/view/history"
	"github.com/vmprof-agent/vmprof-agent/agent/view/httpd"
	"github.com/vmprof-agent/vmprof-agent/agent/view/httpd/listener"
	"github.com/vmprof-agent/vmprof-agent/agent/view/program"
	"github.com/vmprof-agent/vmprof-agent/agent/view/rule"
	"github.com/vmprof-agent/vmprof-agent/agent/view/sink/prom"
	"github.com/vmprof-agent/vmprof-agent/cmd/vmprof-agent/cli"
	"github.com/vmprof-agent/vmprof-agent/cmd/vmprof-agent/probes"
	"github.com/vmprof-agent/vmprof-agent/cmd/vmprof-agent/sampling"
	"github.com/vmprof-agent/vmprof-agent/cmd/vmprof-agent/self"
	"github.com/vmprof-agent/vmprof-agent/cmd/vmprof-agent/targets"
	"github.com/vmprof-agent/vmprof-agent/version"
)

const serveUsage = `Usage: vmprof-agent serve [flags]

Profiles until it is stopped, and serves over HTTP:

  /                                 page: services, flame graph, callers
  /metrics                          metrics for Prometheus: CPU seconds of hot
                                    methods, event totals by service, losses,
                                    the agent's own health
  /profiles/cpu?seconds=N&pid=P     pprof of the next N seconds, of all
                                    processes or some (pid is repeatable)
  /profiles/calls?seconds=N&pid=P   the same for calls, with -e cpu,calls
  /profiles/alloc?seconds=N&pid=P   and so on for each event of -e
  /healthz                          200 while the agent is alive
  /versions                         compiled versions of hot methods, and why
                                    HotSpot invalidated them
  /profiles/cpu?from=03:10&to=03:15&service=S   pprof of the past, from the
                                    history: with --history-dir
  /ui/                              the web pages of go tool pprof, for the
                                    last minute: CPU time, or without -e cpu
                                    the first event kind with stacks

-e takes the same events as record: see vmprof-agent help record.

  vmprof-agent serve                          # on 127.0.0.1:9464
  vmprof-agent serve -e cpu,alloc,lock        # also allocations and locks
  vmprof-agent serve -e wall --slow=Api.handle -p shop  # the slowest calls
  vmprof-agent serve --history-dir=/var/lib/vmprof-agent/history
  vmprof-agent serve --rule='json: share(cpu) where stack.anyMatches("Json")'
  vmprof-agent serve --window-exec=/usr/local/libexec/new-hot-path
  go tool pprof -http=: 'http://127.0.0.1:9464/profiles/cpu?seconds=10'
  vmprof-agent serve --web.listen-address=:9464 --web.config.file=web.yml
  vmprof-agent serve --web.listen-address=unix:/run/vmprof.sock

Profiles show what a machine runs. An address that others can reach needs a
--web.config.file with TLS or passwords, in the format of Prometheus' exporters.
Every user of the machine can read from a loopback address. On a machine with
users that you do not trust, listen on a Unix socket, unix:PATH: only its owner
and its group can connect. report and compare read from unix:PATH.

Flags:
`

// windowLength is how long each of the consecutive windows is that feed the metrics and the pages.
const windowLength = 10 * time.Second

// serveOptions are the flags of serve.
type serveOptions struct {
	targets       targets.Flag
	clock         sampling.Clock
	listen        string
	socket        socketFlags
	webConfig     string
	allowInsecure bool
	maxMethods    int
	maxServices   int
	log           cli.Log
	contexts      sampling.Contexts
	history       historyFlags
	slow          sampling.Slow
	past          *history.Store // nil without a history
	own           ruleFlags
	exec          execFlags
	program       *program.Program // nil without one
	sampling.Flags
}

func parseServe(args []string, stderr io.Writer) (*serveOptions, error) {
	var o serveOptions
	fs := cli.NewFlags("serve", serveUsage, stderr)
	o.targets.Add(fs, "profile only `PID` (or name, pattern)")
	o.clock.Add(fs)
	o.Add(fs)
	o.contexts.Add(fs)
	o.history.add(fs)
	o.own.add(fs)
	o.exec.add(fs)
	o.slow.Add(fs)
	fs.StringVar(&o.listen, "web.listen-address", listener.DefaultListen, "listen on `ADDR`")
	fs.StringVar(&o.listen, "listen", listener.DefaultListen, "the former name of --web.listen-address")
	fs.Lookup("listen").Hidden = true
	o.socket.add(fs)
	fs.StringVar(&o.webConfig, "web.config.file", "", "read TLS and passwords from `FILE`")
	fs.BoolVar(&o.allowInsecure, "web.allow-insecure", false, "serve without TLS and passwords on any address")
	fs.IntVar(&o.maxMethods, "metrics-max-methods", prom.DefaultMaxMethods, "limit to `N` methods per service")
	fs.IntVar(&o.maxServices, "metrics-max-services", prom.DefaultMaxServices, "limit to `N` services")
	o.log.Add(fs, "log attached probes and failures")
	if err := cli.Parse(fs, serveUsage, args); err != nil {
		return nil, err
	}
	switch {
	case fs.NArg() > 0:
		return nil, cli.Unexpected(fs.Arg(0), "")
	case fs.Changed("listen") && fs.Changed("web.listen-address"):
		return nil, cli.Misuse("--listen is the former name of --web.listen-address: give one of them")
	case o.maxMethods < 0 || o.maxServices < 0:
		return nil, cli.Misuse("--metrics-max-methods and --metrics-max-services cannot be negative")
	}
	if err := errors.Join(o.socket.check(fs, o.listen), o.log.Check(), o.clock.Check(), o.Check(fs),
		o.history.check(fs), o.contexts.Read(fs, false), o.own.read(o.contents()), o.exec.check(fs)); err != nil {
		return nil, err
	}
	return &o, o.slow.Check(&o.targets, &o.Flags)
}

// Run is the verb.
func Run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	o, err := parseServe(args, stderr)
	if err != nil {
		return err
	}
	// Before anything is loaded: an address is more easily wrong.
	ln, err := listener.Listen(o.listen, o.webConfig, o.allowInsecure, o.socket.access)
	if err != nil {
		return err
	}
	defer ln.Close()
	pids, err := o.targets.Find(ctx)
	if err != nil {
		return err
	}
	if err := probes.FindValues(ctx, o.Events.Values, pids); err != nil {
		return err
	}
	log := o.log.Logger(stderr)
	self.LimitMemory(log)
	if o.past, err = o.history.open(log); err != nil {
		return err
	}
	if o.past != nil {
		defer o.past.Close()
	}
	if o.program, err = o.exec.start(o.parts(), log); err != nil {
		return err
	}
	// There is nothing to read anew: the web configuration is read for each connection and request.
	signal.Ignore(syscall.SIGHUP)
	options := agent.Options{
		PIDs: pids, Version: version.String(), Log: log, Settle: self.Settle(), MaxContexts: self.MaxContexts(),
	}
	o.clock.Apply(&options)
	o.Apply(&options)
	o.contexts.Apply(&options)
	if err := o.slow.Apply(ctx, pids, o.Events.Budget, &options); err != nil {
		return err
	}
	fmt.Fprintln(stderr, "vmprof-agent: starting: loading BPF programs and looking at running processes")
	a, err := agent.New(ctx, options)
	if err != nil {
		return err
	}
	defer a.Close()
	if err := o.slow.Settle(ctx, a); err != nil {
		return err
	}
	// google/pprof, which makes the pages, looks for settings of the user who runs it; see
	// httpd.New.
	if err := os.Setenv("XDG_CONFIG_HOME", os.DevNull); err != nil {
		return fmt.Errorf("set XDG_CONFIG_HOME: %w", err)
	}
	fmt.Fprintf(stderr, "vmprof-agent: %s, %s (Ctrl-C ends)\n", o.does(options.Frequency), o.answersOn(ln.Addr()))
	return o.run(ctx, live{a}, ln, windowLength, log)
}

// does is a sentence on what the agent is about to do.
func (o *serveOptions) does(frequency int) string {
	var all []string
	if o.Time || o.Calls {
		all = append(all, fmt.Sprintf("sampling at %d Hz", frequency))
		if o.clock.By == attach.TickClock {
			all[0] += " by the kernel's tick"
		}
	}
	var events []string
	for kind, on := range o.Events.Kinds {
		if on {
			events = append(events, profile.EventKind(kind).String())
		}
	}
	if len(events) > 0 {
		all = append(all, "recording "+strings.Join(events, ", "))
	}
	return strings.Join(all, ", ")
}

// answersOn is a sentence on where to look.
func (o *serveOptions) answersOn(addr net.Addr) string {
	if addr.Network() == "unix" {
		return "listening on " + listener.SocketPrefix + addr.String()
	}
	if o.webConfig == "" {
		return fmt.Sprintf("listening on http://%s/", addr)
	}
	return fmt.Sprintf("listening on %s", addr) // with TLS or not, as the file says
}

// A profiler is an agent as serve needs it.
type profiler interface {
	httpd.Source
	prom.Source
	// Run samples until ctx ends.
	Run(ctx context.Context) error
	// Follow hands one window after the other to observe, each of about the same length, until ctx
	// ends.
	Follow(ctx context.Context, length time.Duration, observe func(*profile.Profile)) error
}

// run serves p on ln until ctx ends or something fails.
func (o *serveOptions) run(
	ctx context.Context, p profiler, ln *listener.Listener, length time.Duration, log *slog.Logger,
) error {
	build := version.Get()
	var names []string
	if o.Calls {
		names = engines.Names()
	}
	var past func() history.Stats
	if o.past != nil {
		past = o.past.Stats
	}
	var rules *rule.Runner
	var ruleStates func() []rule.State
	if len(o.own.rules) > 0 {
		var err error
		if rules, err = rule.NewRunner(o.own.rules, o.contents(), log); err != nil {
			return err
		}
		ruleStates = rules.States
	}
	var programState func() program.State
	if o.program != nil {
		programState = o.program.State
		p = labelled{p, o.program}
	}
	var passwords func() map[string]uint64
	var tlsFailures func() uint64
	if o.webConfig != "" {
		passwords, tlsFailures = ln.PasswordChecks, ln.TLSFailures
	}
	metrics, err := prom.New(p, &prom.Options{
		Passwords: passwords, TLSFailures: tlsFailures, History: past, Rules: ruleStates, Program: programState,
		MaxMethods: orNone(o.maxMethods), MaxServices: orNone(o.maxServices), NoTime: !o.Time, Engines: names,
		Events: o.Events.Kinds,
		Build:  prom.Build{Version: build.Version, Revision: build.Revision, GoVersion: build.Go},
	})
	if err != nil {
		return err
	}
	server := httpd.New(p, metrics.Gatherer(), log)
	if o.past != nil {
		server.Keep(history.Read(o.history.dir))
	}

	// Whatever ends first ends the others. The server's last answers come from an agent that has
	// stopped sampling, but is not closed before run returns.
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	followed, endFollow := context.WithCancel(context.WithoutCancel(ctx)) // the last window comes when ctx has ended
	defer endFollow()
	tasks := []func() error{
		func() error { return p.Run(ctx) },
		func() error {
			defer endFollow()
			return p.Follow(ctx, length, func(w *profile.Profile) {
				metrics.Observe(w)
				server.Observe(w)
				if rules != nil {
					rules.Observe(w)
				}
				if o.program != nil {
					o.program.Observe(w)
				}
				if o.past != nil {
					o.past.Observe(w)
				}
			})
		},
		func() error { return server.Serve(ctx, ln) },
	}
	if o.past != nil {
		tasks = append(tasks, func() error { return o.past.Run(followed) })
	}
	if rules != nil {
		tasks = append(tasks, func() error { return rules.Run(followed) })
	}
	if o.program != nil {
		tasks = append(tasks, func() error { return o.program.Run(ctx) })
	}
	ended := make(chan error, len(tasks))
	for _, task := range tasks {
		go func() { ended <- task() }()
	}
	var errs []error
	for range tasks {
		if err := <-ended; err != nil && !errors.Is(err, context.Canceled) {
			errs = append(errs, err)
		}
		stop()
	}
	return errors.Join(errs...)
}

// labelled has the labels that the program of --window-exec gives to processes.
type labelled struct {
	profiler
	program *program.Program
}

// Collect is the profiler's, with labels.
func (l labelled) Collect(ctx context.Context, d time.Duration, pids []int) (*profile.Profile, error) {
	p, err := l.profiler.Collect(ctx, d, pids)
	if err != nil {
		return nil, err
	}
	return l.program.Label(p), nil
}

// Follow is the profiler's, with labels.
func (l labelled) Follow(ctx context.Context, length time.Duration, observe func(*profile.Profile)) error {
	return l.profiler.Follow(ctx, length, func(w *profile.Profile) { observe(l.program.Label(w)) })
}

// orNone is a number of series as prom.Options has it, where 0 stands for the default.
func orNone(n int) int {
	if n == 0 {
		return -1
	}
	return n
}

// live makes a profiler of an agent.
type live struct{ *agent.Agent }

// Collect is the agent's, for processes that exist: who asks for another one should not wait for an
// empty profile.
func (l live) Collect(ctx context.Context, d time.Duration, pids []int) (*profile.Profile, error) {
	for _, pid := range pids {
		if _, err := proc.DefaultRoot.Identify(pid); errors.Is(err, proc.ErrGone) {
			return nil, fmt.Errorf("pid %d: %w", pid, httpd.ErrNoProcess)
		}
	}
	return l.Agent.Collect(ctx, d, pids)
}
