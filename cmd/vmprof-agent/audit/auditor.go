package audit

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/collect/timing"
	"github.com/vmprof-agent/vmprof-agent/agent/model/stored"
	"github.com/vmprof-agent/vmprof-agent/agent/view/audit"
)

// combined is the loop number of method and loops together, as the paper compares them (section 3):
// every part of an invocation between two timing points is one timing.
const combined = math.MaxUint32

// An auditor compares versions by their timings.
type auditor struct {
	opt      *auditOptions
	timings  uint64
	versions []timing.Version // in the order in which they came
	since    []time.Time      // when they came
	regions  map[uint32]*auditedRegion
}

// An auditedRegion is the method, one of its loops, or both together.
type auditedRegion struct {
	contest *audit.Contest
	scores  []audit.Scores // by version
}

// maxPerturb is the perturb score above which timings are refused: they would be half as long as
// timing nothing takes, or less. The paper takes those with a score of 1.34.
const maxPerturb = 2

func newAuditor(o *auditOptions) *auditor {
	return &auditor{opt: o, regions: map[uint32]*auditedRegion{}}
}

// add adds a timing, taking which costs that much.
func (a *auditor) add(t *timing.Timing, cost time.Duration) {
	version := slices.IndexFunc(a.versions, func(v timing.Version) bool {
		return v.PID == t.Version.PID && v.ID == t.Version.ID
	})
	if version < 0 {
		if len(a.versions) == maxAuditVersions {
			return
		}
		version = len(a.versions)
		a.versions, a.since = append(a.versions, t.Version), append(a.since, time.Now())
	}
	if name := t.Version.Name; name != "" {
		a.versions[version].Name = stored.Printable(name)
	}
	a.timings++
	if !a.warm(version) {
		return
	}
	a.region(t.Region.Loop).add(version, t.Duration, t.Runs, cost)
	if a.opt.loops && !a.opt.engine.apart {
		a.region(combined).add(version, cmp.Or(t.Part, t.Duration), t.Runs, cost)
	}
}

// warmup is for how long timings of a version do not count after its first one: a version that did
// not run before has cold caches, and the branch predictor does not know it.
const warmup = time.Second

// warm reports whether timings of a version count.
func (a *auditor) warm(version int) bool { return time.Since(a.since[version]) >= warmup }

// maxAuditVersions is how many versions are compared: as many as a contest has.
const maxAuditVersions = 64

func (a *auditor) region(loop uint32) *auditedRegion {
	r := a.regions[loop]
	if r == nil {
		r = &auditedRegion{contest: audit.NewContest(&audit.ContestOptions{Confidence: a.opt.confidence,
			Least: a.opt.least / 100})}
		a.regions[loop] = r
	}
	return r
}

func (r *auditedRegion) add(version int, d time.Duration, runs uint32, cost time.Duration) {
	for len(r.scores) <= version {
		r.scores = append(r.scores, audit.Scores{})
	}
	r.scores[version].Add(float64(d), float64(cost), runs)
	r.contest.Add(version, float64(d), runs)
}

// judged are the regions that there is a verdict on: the method, both together, or each loop if
// they are timed apart.
func (a *auditor) judged() []uint32 {
	if !a.opt.loops {
		return []uint32{0}
	}
	if !a.opt.engine.apart {
		if a.regions[combined] != nil {
			return []uint32{combined}
		}
		return []uint32{0}
	}
	var loops []uint32
	for _, loop := range slices.Sorted(maps.Keys(a.regions)) {
		if loop > 0 && a.regions[loop].perturb() <= maxPerturb {
			loops = append(loops, loop)
		}
	}
	if len(loops) == 0 {
		return []uint32{0}
	}
	return loops
}

// compared are the versions with which the base is compared in a region.
func (a *auditor) compared(loop uint32) (list []int) {
	if a.regions[loop] == nil {
		return nil
	}
	base := a.base(loop)
	for i := range a.versions {
		if i != base && a.takes(loop, i) {
			list = append(list, i)
		}
	}
	slices.SortFunc(list, func(i, j int) int { return compareVersions(a.versions[i], a.versions[j]) })
	return list
}

// takes reports whether a version takes part in a comparison: a loop that is timed apart may not be
// in all versions.
func (a *auditor) takes(loop uint32, version int) bool {
	return loop == 0 || loop == combined || !a.opt.engine.apart || a.regions[loop].has(version)
}

// has reports whether there are timings of a version.
func (r *auditedRegion) has(version int) bool {
	return version < len(r.scores) && r.scores[version].Runs() > 0
}

// perturb is the highest perturb score of a version, without outliers.
func (r *auditedRegion) perturb() (most float64) {
	for version := range r.scores {
		most = max(most, r.scores[version].TooShort())
	}
	return most
}

// base is the version that others are compared with: the first process's lowest of those that take
// part.
func (a *auditor) base(loop uint32) int {
	base := -1
	for i := range a.versions {
		if a.takes(loop, i) && (base < 0 || compareVersions(a.versions[i], a.versions[base]) < 0) {
			base = i
		}
	}
	return max(base, 0)
}

func compareVersions(a, b timing.Version) int {
	return cmp.Or(cmp.Compare(a.PID, b.PID), cmp.Compare(a.ID, b.ID))
}

// look compares a version with the base. Among several verdicts each has to be surer (Bonferroni).
func (a *auditor) look(loop uint32, version int, last bool) audit.Difference {
	contest, verdicts := a.regions[loop].contest, max(len(a.versions)-1, 1)*len(a.judged())
	contest.Confidence(1 - (1-a.opt.confidence)/float64(verdicts))
	return contest.Look(a.base(loop), version, last)
}

// decided reports whether there is a verdict on every version, and each interval is as narrow as
// wanted.
func (a *auditor) decided() bool {
	verdicts := 0
	for _, loop := range a.judged() {
		for _, version := range a.compared(loop) {
			d := a.look(loop, version, false)
			narrow := (d.High-d.Low)/2 <= a.opt.precision
			if d.Verdict == audit.Undecided && !narrow || a.opt.precision > 0 && !narrow {
				return false
			}
			verdicts++
		}
	}
	return verdicts > 0
}

// short is an error if timings are too short for a verdict.
func (a *auditor) short() error {
	r := a.regions[a.judged()[0]]
	if r == nil && len(a.regions) > 0 { // loops alone, and none is long enough
		r = a.regions[slices.Min(slices.Collect(maps.Keys(a.regions)))]
	}
	if r == nil || a.timings < 1000 || r.perturb() <= maxPerturb {
		return nil
	}
	return fmt.Errorf("%s is too short to time: one timing costs as much as the code itself (perturb score %.1f, "+
		"limit %d). %s",
		a.opt.method, r.perturb(), maxPerturb, a.opt.engine.short)
}

// name is what users call a version.
func (a *auditor) name(version int) string {
	v := a.versions[version]
	text := "version " + strconv.FormatUint(v.ID, 10)
	if strings.HasPrefix(v.Name, "#") { // the number is in it
		text = "version " + v.Name
	} else if v.Name != "" {
		text += " (" + v.Name + ")"
	}
	if len(a.opt.pids) > 1 {
		text += fmt.Sprintf(" in process %d", v.PID)
	}
	return text
}

// write writes verdicts, timings and losses.
func (a *auditor) write(w io.Writer, took, cost, within time.Duration, stats timing.Stats) error {
	var b strings.Builder
	for _, r := range a.regions {
		r.contest.End()
	}
	if len(a.versions) == 1 {
		fmt.Fprintf(&b, "nothing to compare: only %s of `%s` ran in %s; %s\n",
			a.name(0), a.opt.method, took.Round(time.Second), a.opt.engine.single)
	}
	if a.opt.loops && a.opt.engine.apart && a.judged()[0] == 0 {
		b.WriteString("no loop was timed, or none takes long enough: the comparison is of invocations\n")
	}
	verdicts := 0
	for _, loop := range a.judged() {
		for _, version := range a.compared(loop) {
			b.WriteString(a.sentence(loop, version, took) + "\n")
			verdicts++
		}
	}
	if verdicts == 0 && len(a.versions) > 1 {
		fmt.Fprintf(&b, "undecided: too few timings of more than one version of `%s`; audit longer: -d\n", a.opt.method)
	}
	if a.opt.loops && !a.opt.engine.apart {
		b.WriteString("method and loops together: mean time from one timing point to the next\n")
	}
	b.WriteByte('\n')
	a.table(&b)
	b.WriteByte('\n')
	fmt.Fprintf(&b, "%s in %s; each costs the program %d ± %d ns, which is subtracted\n",
		counted(stats.Taken, "timing"), took.Round(100*time.Millisecond), cost.Nanoseconds(), within.Nanoseconds())
	if lost := lostLine(stats.Lost); lost != "" {
		b.WriteString(lost + "\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// sentence is the verdict on a version.
func (a *auditor) sentence(loop uint32, version int, took time.Duration) string {
	r, base := a.regions[loop], a.base(loop)
	d := a.look(loop, version, true)
	totals := r.contest.Totals()
	count := func(v int) string {
		if v >= len(totals) {
			return "0"
		}
		return thousands(totals[v].Timings)
	}
	sure := fmt.Sprintf("%s %% confidence, %s + %s timings", percentOf(a.opt.confidence), count(base), count(version))
	name, than := fmt.Sprintf("%s of `%s`", a.name(version), a.opt.method), a.name(base)
	if a.opt.engine.apart && loop > 0 {
		name = fmt.Sprintf("an iteration of loop %d of `%s` in %s", loop, a.opt.method, a.name(version))
	}
	half := (d.High - d.Low) / 2
	switch d.Verdict {
	case audit.More:
		return fmt.Sprintf("%s is %.1f %% ± %.1f slower than %s (%s)", name, d.Percent, half, than, sure)
	case audit.Less:
		return fmt.Sprintf("%s is %.1f %% ± %.1f faster than %s (%s)", name, -d.Percent, half, than, sure)
	case audit.Same:
		return fmt.Sprintf("no difference that matters: %s is within %g %% of %s: %+.2f %% ± %.2f (%s)", name,
			a.opt.least, than, d.Percent, half, sure)
	}
	switch d.Reason {
	case audit.TooFew:
		return fmt.Sprintf("undecided: too few timings of %s and %s (%s); audit longer: -d", name, than, sure)
	case audit.Short:
		return fmt.Sprintf("undecided: %s and %s are shorter than the cost of timing them", name, than)
	}
	text := fmt.Sprintf("undecided: %s differs from %s by %+.1f %% ± %.1f (%s)", name, than, d.Percent, half, sure)
	if longer := took.Seconds() * d.Longer; !math.IsInf(longer, 0) && !math.IsNaN(longer) {
		text += fmt.Sprintf("; a verdict may take -d %.0f", math.Ceil(longer))
	}
	return text
}

// table has a line for each region and version.
func (a *auditor) table(w io.Writer) {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "of\tversion\ttimings\truns\tns a run\t±\tlongest\tcut, %\tperturb\tconverge\t")
	if len(a.regions) == 0 {
		fmt.Fprintln(w, "too few timings: those in the first second of a version do not count, as its caches are cold")
		return
	}
	for _, loop := range slices.Sorted(maps.Keys(a.regions)) {
		r := a.regions[loop]
		order := append([]int{a.base(loop)}, a.compared(loop)...)
		of := "loop " + strconv.Itoa(int(loop))
		switch loop {
		case 0:
			of = "invocation"
		case combined:
			of = "together"
		}
		within := map[int]float64{}
		for _, version := range order[1:] {
			d := a.look(loop, version, true)
			within[version] = d.B.Within
			if _, set := within[order[0]]; !set {
				within[order[0]] = d.A.Within
			}
		}
		totals := r.contest.Totals()
		for _, version := range order {
			if version >= len(totals) || totals[version].Timings == 0 {
				continue
			}
			total, scores := totals[version], &r.scores[version]
			half := "-"
			switch h, ok := within[version]; {
			case ok && !math.IsNaN(h):
				half = strconv.FormatFloat(h, 'f', 1, 64)
			case total.Timings < audit.EnoughTimings:
				half = "too few"
			}
			fmt.Fprintf(t, "%s\t%s\t%s\t%.0f\t%.1f\t%s\t%.0f\t%.1f\t%.2f\t%.2g\t\n", of,
				strings.TrimPrefix(a.name(version), "version "),
				thousands(total.Timings), total.Runs, (total.Time-total.Cut)/total.Runs, half, total.Longest,
				100*total.Cut/max(total.Time, 1),
				scores.Perturb(), scores.Converge())
		}
	}
	_ = t.Flush()
}

// lostLine says what was lost; "" if nothing was.
func lostLine(lost map[string]uint64) string {
	var parts []string
	for _, cause := range slices.Sorted(maps.Keys(lost)) {
		parts = append(parts, fmt.Sprintf("%s (%s)", thousands(lost[cause]), cause))
	}
	if len(parts) == 0 {
		return ""
	}
	return "not timed: " + strings.Join(parts, ", ")
}

// percentOf writes a probability in %.
func percentOf(p float64) string { return strconv.FormatFloat(math.Round(p*1e6)/1e4, 'f', -1, 64) }

// counted writes a number of things: "1 timing", "12,345 timings".
func counted(n uint64, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return thousands(n) + " " + thing + "s"
}

// thousands writes 12345 as 12,345.
func thousands(n uint64) string {
	text := strconv.FormatUint(n, 10)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}
