package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/prometheus/procfs"

	"github.com/vmprof-agent/vmprof-agent/tests/profiler"
	"github.com/vmprof-agent/vmprof-agent/tests/report"
)

// kinds are all that need no argument of the user.
const kinds = "cpu,alloc,lock,offcpu,wall,safepoint,page-faults,write-barrier,calls"

// A server is a running `serve`.
type server struct {
	*profiler.Server
	history string
}

// startServer starts `serve` for the children of this process, so that what else the machine does
// is not in the figures, with a history below dir. It does not end with ctx: what it used is read
// after that.
func startServer(ctx context.Context, agent profiler.Agent, dir string) (*server, error) {
	history := filepath.Join(dir, "history")
	children := "-p" + strconv.Itoa(os.Getpid())
	s, err := agent.Serve(context.WithoutCancel(ctx), children, "-e", kinds, "--history-dir", history)
	return &server{s, history}, err
}

// A usage is what a server uses at one time.
type usage struct {
	after       time.Duration // since the trial began
	jvms        int64         // JVMs that were started until then
	cpu         float64       // seconds of CPU time until then
	anon        uint64        // bytes of memory of its own, resident
	descriptors int
	objects     map[string]int // descriptors of BPF objects, by kind
	threads     int
	goroutines  int
	kernel      uint64 // bytes of its BPF maps and programs
	history     int64  // bytes on disk
	samples     float64
	lost        map[string]float64 // samples, events and windows, by counter and cause
}

// usage asks the kernel, and the server's metrics.
func (s *server) usage() (u usage, err error) {
	p, err := procfs.NewProc(s.PID())
	if err != nil {
		return u, fmt.Errorf("look at the server: %w", err)
	}
	stat, err := p.Stat()
	if err != nil {
		return u, fmt.Errorf("read the server's CPU time: %w", err)
	}
	status, err := p.NewStatus()
	if err != nil {
		return u, fmt.Errorf("read the server's memory: %w", err)
	}
	u.cpu, u.threads, u.anon = stat.CPUTime(), stat.NumThreads, status.RssAnon
	if err := u.lookAtDescriptors(s.PID()); err != nil {
		return u, err
	}
	if err := u.lookAtMetrics(s.URL); err != nil {
		return u, err
	}
	return u, filepath.Walk(s.history, func(_ string, info os.FileInfo, err error) error {
		if err == nil && info.Mode().IsRegular() {
			u.history += info.Size()
		}
		if errors.Is(err, os.ErrNotExist) { // merged meanwhile
			return nil
		}
		return err
	})
}

// lookAtDescriptors counts open files, and the memory of BPF objects, which the kernel names there.
func (u *usage) lookAtDescriptors(pid int) error {
	infos, err := filepath.Glob(fmt.Sprintf("/proc/%d/fdinfo/*", pid))
	if err != nil {
		return err
	}
	u.descriptors, u.objects = len(infos), map[string]int{}
	for _, path := range infos {
		text, err := os.ReadFile(path)
		if err != nil {
			continue // closed meanwhile
		}
		for kind, key := range map[string]string{"maps": "map_id:", "programs": "prog_id:", "links": "link_id:"} {
			if bytes.Contains(text, []byte("\n"+key)) {
				u.objects[kind]++
			}
		}
		for line := range strings.Lines(string(text)) {
			if value, ok := strings.CutPrefix(line, "memlock:"); ok {
				n, _ := strconv.ParseUint(strings.TrimSpace(value), 10, 64)
				u.kernel += n
			}
		}
	}
	return nil
}

// lost are the counters of what is missing from profiles.
var lost = regexp.MustCompile(`^vmprof_.*(_dropped|_lost)_total$|^vmprof_history_failures_total$`)

func (u *usage) lookAtMetrics(url string) error {
	response, err := http.Get(url + "/metrics")
	if err != nil {
		return fmt.Errorf("read the server's metrics: %w", err)
	}
	defer response.Body.Close()
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(response.Body)
	if err != nil {
		return fmt.Errorf("read the server's metrics: %w", err)
	}
	for name, family := range families {
		for _, m := range family.GetMetric() {
			switch {
			case name == "go_goroutines":
				u.goroutines = int(m.GetGauge().GetValue())
			case name == "vmprof_samples_attempted_total", name == "vmprof_event_samples_attempted_total",
				name == "vmprof_call_samples_attempted_total":
				u.samples += m.GetCounter().GetValue()
			case lost.MatchString(name):
				u.addLost(name, m)
			}
		}
	}
	return nil
}

func (u *usage) addLost(name string, m *dto.Metric) {
	n := m.GetCounter().GetValue()
	if n == 0 {
		return
	}
	cause := strings.TrimSuffix(strings.TrimPrefix(name, "vmprof_"), "_total")
	for _, label := range m.GetLabel() {
		cause += " " + label.GetValue()
	}
	if u.lost == nil {
		u.lost = map[string]float64{}
	}
	u.lost[cause] += n
}

// causes are what was lost: "0", or "event_samples_dropped ring_full 12, samples_dropped ring_full
// 3".
func (u *usage) causes() string {
	var all []string
	for _, cause := range slices.Sorted(maps.Keys(u.lost)) {
		all = append(all, fmt.Sprintf("%s %.0f", cause, u.lost[cause]))
	}
	return cmp.Or(strings.Join(all, ", "), "0")
}

func (u usage) cells() []string {
	return []string{
		u.after.Round(time.Minute / 60).String(), fmt.Sprint(u.jvms), fmt.Sprintf("%.0f", u.cpu),
		fmt.Sprintf("%.1f", float64(u.anon)/1e6), fmt.Sprint(u.descriptors),
		fmt.Sprintf("%d, %d, %d", u.objects["maps"], u.objects["programs"], u.objects["links"]),
		fmt.Sprintf("%.1f", float64(u.kernel)/1e6), fmt.Sprint(u.threads),
		fmt.Sprint(u.goroutines), fmt.Sprintf("%.1f", float64(u.history)/1e6), fmt.Sprintf("%.0f", u.samples),
		u.causes(),
	}
}

var header = []string{
	"after", "JVMs started", "CPU time, s", "anonymous memory, MB", "descriptors", "BPF maps, programs, links",
	"their memory in the kernel, MB",
	"threads", "goroutines", "history on disk, MB", "samples and events", "lost, by counter and cause",
}

func (u usage) String() string {
	line := ""
	for i, cell := range u.cells() {
		line += header[i] + " " + cell + "; "
	}
	return line
}

func tableOf(rows []usage) report.Table {
	table := report.Table{Header: header}
	for _, u := range rows {
		table.Add(u.cells()...)
	}
	return table
}
